"""Explanations as JSON: parts of the score, their positions in the text, tree paths, similar labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from longtail.features.text_embedding import TfidfEmbedding
from longtail.features.tfidf.tfidf import Tfidf
from longtail.features.tokenizer import Tokens
from longtail.learners import Explanation, Learner, TextLearner
from longtail.serve.models import Served
from longtail.serve.problems import ProblemDetails, seven_digits
from longtail.serve.spans import Span, find_places, in_utf16, share_out, utf16_places, words

_SOURCES = 10
_AT_ONCE = 8  # labels


@dataclass(frozen=True)
class ExplainOptions:
    """What an explanation should include.

    Parameters
    ----------
    parts : int
        Maximum words or features; the others are summed.
    nearest : int
        Number of similar labels.
    utf16 : bool
        Count positions in a text in UTF-16 units, as JavaScript does.
    spans : int
        Maximum positions in a text per label.
    end : float, optional
        Deadline on the monotonic clock, checked between labels and within long texts.
    """

    parts: int = 20
    nearest: int = 5
    utf16: bool = False
    spans: int = 1000
    end: float | None = None

    def check_time(self) -> None:
        """Raise ProblemDetails after the deadline."""
        if self.end is not None and time.monotonic() > self.end:
            raise ProblemDetails(
                "deadline", "The explanation took too long: request fewer labels, or send a shorter text."
            )


def explain_row(served: Served, row: Any, labels: Sequence[int], options: ExplainOptions) -> dict[int, dict[str, Any]]:
    """Explain the scores of some labels for one text or row; labels without a training row are omitted."""
    options.check_time()
    known = [label for label in labels if served.labels.counts[label] > 0]
    if not known:
        return {}
    spans_of: Callable[[Explanation], list[Span]] | None = None
    learner = served.model.learner
    if isinstance(row, str) and type(learner) is TextLearner:
        whys, spans_of = _explain_text(learner, row, known, options)
    else:
        of_row = row if isinstance(row, str) else served.matrix([row])
        whys = _explained(lambda some: served.model.explain(of_row, some), known, options)
        features = _find_tfidf(learner)
        if isinstance(row, str) and features is not None:
            spans_of = _word_spans(features, row, whys, options)
    wide = utf16_places(row) if options.utf16 and isinstance(row, str) else None
    explained = {}
    for why in whys:
        options.check_time()
        explained[why.label] = _written(served, why, in_utf16(wide, [] if spans_of is None else spans_of(why)), options)
    return explained


def strongest(served: Served, label: int, most: int) -> list[dict[str, Any]] | None:
    """Return the words or features with the largest weights for a label, None if the learner has no such weights."""
    space = served.space
    found = None if space is None else space.weights(label)
    if found is None:
        return None
    features, values = found
    order = (-values).argsort(kind="stable")[:most]
    name = _namer(served.model.learner)
    return [
        {"feature": name(int(features[at])), "weight": seven_digits(values[at])}
        for at in order.tolist()
        if values[at] > 0
    ]


def _explain_text(
    learner: TextLearner, text: str, labels: list[int], options: ExplainOptions
) -> tuple[list[Explanation], Callable[[Explanation], list[Span]]]:
    """Explain as `TextLearner.explain` does, but look up only the names of features that are shown."""
    rows, features = learner._check_rows([text]), learner.features_
    whys = _explained(lambda some: learner.learner_.explain(rows, some), labels, options)
    if isinstance(features, Tokens):
        places = {why.label: why.parts[: options.parts] for why in whys}
        offsets = features._made().encode(text).offsets

        def spans(why: Explanation) -> list[Span]:
            found = [(*offsets[int(place)], number, effect) for number, (place, effect) in enumerate(places[why.label])]
            return sorted(Span(*one) for one in found if one[1] > one[0])[: options.spans]

        return [why.renamed(features=features.names_of(rows)) for why in whys], spans
    tfidf = features.tfidf_ if isinstance(features, TfidfEmbedding) else features
    names: Any = _Names(_namer(learner))
    whys = [why.renamed(features=names) for why in whys]
    return whys, _word_spans(tfidf, text, whys, options)


def _explained(
    explain: Callable[[list[int]], list[Explanation]], labels: list[int], options: ExplainOptions
) -> list[Explanation]:
    """Explain labels a few at a time, with the deadline checked in between."""
    whys: list[Explanation] = []
    for at in range(0, len(labels), _AT_ONCE):
        options.check_time()
        whys += explain(labels[at : at + _AT_ONCE])
    return whys


def _word_spans(
    features: Tfidf, text: str, whys: Sequence[Explanation], options: ExplainOptions
) -> Callable[[Explanation], list[Span]]:
    """Find the positions of the parts of all labels in one scan of the text."""
    options.check_time()
    found = words(text, lowercase=bool(features.lowercase))
    wanted = {term for why in whys for term, _ in why.parts[: options.parts]}
    places = find_places(found, wanted, ngrams=features._longest, most=options.spans, check=options.check_time)

    def spans(why: Explanation) -> list[Span]:
        return share_out(places, why.parts[: options.parts])[: options.spans]

    return spans


class _Names:
    """Names of features, looked up one by one: a vocabulary can have millions."""

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
            return f"[{feature - len(ends) + 1}]"  # a component of an embedding, after the words
        return text[ends[feature] : ends[feature + 1]].tobytes().decode()

    return name


def _find_tfidf(learner: Learner) -> Tfidf | None:
    for _, part in learner.parts(fitted=True):
        features = getattr(part, "features_", None)
        if isinstance(features, TfidfEmbedding):
            return features.tfidf_
        if isinstance(features, Tfidf):
            return features
    return None


def _written(served: Served, why: Explanation, spans: list[Span], options: ExplainOptions) -> dict[str, Any]:
    shown, rest = why.parts[: options.parts], why.parts[options.parts :]
    return {
        "score": seven_digits(why.score),
        "bias": seven_digits(why.bias),
        "parts": _parts(shown),
        "others": {"parts": len(rest), "contribution": seven_digits(sum(effect for _, effect in rest))},
        "spans": [{**span._asdict(), "contribution": seven_digits(span.contribution)} for span in spans],
        "sources": _parts(why.sources[:_SOURCES], "source"),
        "path": _path(served, why),
        "nearest": served.nearest(why.label, options.nearest) if options.nearest else [],
        "remark": why.remark,
    }


def _parts(parts: Sequence[tuple[str, float]], what: str = "feature") -> list[dict[str, Any]]:
    return [{what: name, "contribution": seven_digits(effect)} for name, effect in parts]


def _path(served: Served, why: Explanation) -> dict[str, Any] | None:
    """Return the path in the instance tree that contributed most, or in the first label tree with the label."""
    if why.path:
        steps = [{"node": None, "name": way, "parts": _parts(pulls)} for way, pulls in why.path]
        return {"tree": why.path_name, "share": seven_digits(why.path_share), "steps": steps}
    return label_path(served, why.label)


def label_path(served: Served, label: int) -> dict[str, Any] | None:
    """Return the path to a label in the first label tree that contains it, None if there is none."""
    seen = served.outline
    holders = [] if seen is None else seen.holders(label)
    if seen is None or not holders:
        return None
    steps = [{"node": node, "name": seen.name(node), "parts": []} for node in seen.path(holders[0])]
    return {"tree": f"tree {int(seen.forest.trees[holders[0]])}", "share": None, "steps": steps}
