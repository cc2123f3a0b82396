"""Why a label got its score, as an answer: parts, places in the text, the way through a tree, labels alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from longtail.app.serve.models import Served
from longtail.app.serve.numbers import shortened
from longtail.app.serve.problems import Problem
from longtail.app.serve.spans import Span, find_places, in_utf16, share_out, utf16_places, words, written
from longtail.corpus.text import Tfidf
from longtail.corpus.text_embedding import TfidfEmbedding
from longtail.corpus.token_rows import Tokens
from longtail.learners import Explanation, TextLearner

_SOURCES = 10
_AT_ONCE = 8  # labels
Part = tuple[str, float]


@dataclass(frozen=True)
class Wish:
    """How much of an explanation is wanted.

    Parameters
    ----------
    parts : int
        Words or features at most; the others are added up.
    nearest : int
        Labels alike.
    utf16 : bool
        Count places in a text as JavaScript does.
    spans : int
        Places in a text a label at most, the first ones.
    end : float, optional
        Moment of the monotonic clock after which the work is given up: between labels, and along a long text.
    """

    parts: int = 20
    nearest: int = 5
    utf16: bool = False
    spans: int = 1000
    end: float | None = None

    def check_time(self) -> None:
        """Give up what nobody waits for any more."""
        if self.end is not None and time.monotonic() > self.end:
            raise Problem("deadline", "The explanation took too long: ask for fewer labels, or a shorter text.")


def explain_row(served: Served, row: Any, labels: Sequence[int], wish: Wish) -> dict[int, dict[str, Any]]:
    """Explain the scores of some labels for one text or row; labels without a training row are left out."""
    wish.check_time()
    known = [label for label in labels if served.labels.counts[label] > 0]
    if not known:
        return {}
    spans_of: Callable[[Explanation], list[Span]] = _no_spans
    learner = served.model.learner
    if isinstance(row, str) and type(learner) is TextLearner:
        whys, spans_of = _explain_text(learner, row, known, wish)
    else:
        of_row = row if isinstance(row, str) else served.matrix([row])
        whys = _explained(lambda some: served.model.explain(of_row, some), known, wish)
        features = _find_tfidf(learner)
        if isinstance(row, str) and features is not None:
            spans_of = _word_spans(features, row, whys, wish)
    wide = utf16_places(row) if wish.utf16 and isinstance(row, str) else None
    explained = {}
    for why in whys:
        wish.check_time()
        explained[why.label] = _written(served, why, in_utf16(wide, spans_of(why)), wish)
    return explained


def strongest(served: Served, label: int, most: int) -> list[dict[str, Any]] | None:
    """Words or features that push a label up the most; None where the learner has no weights for them."""
    space = served.space
    found = None if space is None else space.weights(label)
    if found is None:
        return None
    features, values = found
    order = (-values).argsort(kind="stable")[:most]
    name = _namer(served.model.learner)
    return [
        {"feature": name(int(features[at])), "weight": shortened(values[at])} for at in order.tolist() if values[at] > 0
    ]


def _explain_text(
    learner: TextLearner, text: str, labels: list[int], wish: Wish
) -> tuple[list[Explanation], Callable[[Explanation], list[Span]]]:
    """Explain as `TextLearner.explain` does, but spell out no more features than are shown."""
    rows, features = learner._check_rows([text]), learner.features_
    whys = _explained(lambda some: learner.learner_.explain(rows, some), labels, wish)
    if isinstance(features, Tokens):
        places = {why.label: why.parts[: wish.parts] for why in whys}
        offsets = features._made().encode(text).offsets

        def spans(why: Explanation) -> list[Span]:
            found = [(*offsets[int(place)], number, effect) for number, (place, effect) in enumerate(places[why.label])]
            return sorted(Span(*one) for one in found if one[1] > one[0])[: wish.spans]

        return [why.renamed(features=features.names_of(rows)) for why in whys], spans
    tfidf = features.tfidf_ if isinstance(features, TfidfEmbedding) else features
    names: Any = _Names(_namer(learner))
    whys = [why.renamed(features=names) for why in whys]
    return whys, _word_spans(tfidf, text, whys, wish)


def _explained(explain: Callable[[list[int]], list[Explanation]], labels: list[int], wish: Wish) -> list[Explanation]:
    """Explanations of some labels, a few at a time: what each label has to itself is most of the work."""
    whys: list[Explanation] = []
    for at in range(0, len(labels), _AT_ONCE):
        wish.check_time()
        whys += explain(labels[at : at + _AT_ONCE])
    return whys


def _word_spans(
    features: Tfidf, text: str, whys: Sequence[Explanation], wish: Wish
) -> Callable[[Explanation], list[Span]]:
    """Look for the parts of all labels at once: a text can be long."""
    wish.check_time()
    found = words(text, lowercase=bool(features.lowercase))
    wanted = {term for why in whys for term, _ in why.parts[: wish.parts]}
    places = find_places(found, wanted, ngrams=int(features.ngrams), most=wish.spans, check=wish.check_time)

    def spans(why: Explanation) -> list[Span]:
        return share_out(places, why.parts[: wish.parts])[: wish.spans]

    return spans


def _no_spans(why: Explanation) -> list[Span]:
    return []


class _Names:
    """Names of features by number, spelled out one by one: a vocabulary can hold millions."""

    def __init__(self, name: Callable[[int], str]) -> None:
        self._name = name

    def __getitem__(self, feature: int) -> str:
        return self._name(feature)


def _namer(learner: Any) -> Callable[[int], str]:
    features = getattr(learner, "features_", None)
    tfidf = features.tfidf_ if isinstance(features, TfidfEmbedding) else features
    if not isinstance(tfidf, Tfidf):
        tfidf = _find_tfidf(learner)
    if tfidf is None:
        return str
    text, ends = tfidf.term_bytes_, tfidf.term_offsets_

    def name(feature: int) -> str:
        if feature >= len(ends) - 1:
            return f"[{feature - len(ends) + 1}]"  # a number of a vector beside the words
        return text[ends[feature] : ends[feature + 1]].tobytes().decode()

    return name


def _find_tfidf(learner: Any) -> Tfidf | None:
    features = getattr(learner, "features_", None)
    if isinstance(features, TfidfEmbedding):
        return features.tfidf_
    if isinstance(features, Tfidf):
        return features
    for inside in (getattr(learner, "learner_", None), *getattr(learner, "learners_", ())):
        found = None if inside is None else _find_tfidf(inside)
        if found is not None:
            return found
    return None


def _written(served: Served, why: Explanation, spans: list[Span], wish: Wish) -> dict[str, Any]:
    shown, rest = why.parts[: wish.parts], why.parts[wish.parts :]
    return {
        "score": shortened(why.score),
        "bias": shortened(why.bias),
        "parts": _parts(shown),
        "others": {"parts": len(rest), "contribution": shortened(sum(effect for _, effect in rest))},
        "spans": written([span._replace(contribution=shortened(span.contribution)) for span in spans]),
        "sources": _parts(why.sources[:_SOURCES], "source"),
        "path": _path(served, why),
        "nearest": served.nearest(why.label, wish.nearest) if wish.nearest else [],
        "remark": why.remark,
    }


def _parts(parts: Sequence[Part], what: str = "feature") -> list[dict[str, Any]]:
    return [{what: name, "contribution": shortened(effect)} for name, effect in parts]


def _path(served: Served, why: Explanation) -> dict[str, Any] | None:
    """The way to a label: down the tree over rows that contributed most, or down the first label tree that holds it."""
    if why.path:
        steps = [{"node": None, "name": way, "parts": _parts(pulls)} for way, pulls in why.path]
        return {"tree": why.path_name, "share": shortened(why.path_share), "steps": steps}
    return label_path(served, why.label)


def label_path(served: Served, label: int) -> dict[str, Any] | None:
    """Nodes from the root of the first label tree that holds a label down to it; None where there is none."""
    seen = served.outline
    holders = [] if seen is None else seen.holders(label)
    if seen is None or not holders:
        return None
    steps = [{"node": node, "name": seen.name(node), "parts": []} for node in seen.path(holders[0])]
    return {"tree": f"tree {int(seen.forest.trees[holders[0]])}", "share": None, "steps": steps}
