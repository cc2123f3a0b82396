"""`longtail train`: from a data set to a saved model."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.app.cli.arguments import parse_propensity, parse_settings, parse_tail
from longtail.app.cli.clusters import OnCluster, on_cluster
from longtail.app.cli.console import give, give_json, guarded, note, step
from longtail.app.plans import FEATURES, compose, label_texts_of, published_propensity
from longtail.errors import InputError, ParameterError

if TYPE_CHECKING:
    from longtail.corpus import Dataset
    from longtail.learners import Learner, TextLearner


@guarded
def train(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="Name of a recipe; longtail recipes lists them.", show_default=False),
    ],
    train: Annotated[
        str,
        typer.Argument(
            metavar="TRAIN",
            help="File in XC text, JSONL or .npz format, or a data set's name such as debian-depends:train.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="Directory for the model.", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set a parameter: regularisation=0.5, weighting.beta=0.99, or features.min_rows=3 for texts. "
            "Can be repeated.",
        ),
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Constants of the propensity model; the data set's own, else 0.55,1.5."),
    ] = None,
    tree: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own label tree for a tree recipe: SKOS (.rdf, .nt, .ttl), JSON, or child<TAB>parent lines.",
        ),
    ] = None,
    label_texts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A text for each label, a line a label; 'names' takes their names. A tree recipe parts labels by "
            "them; a network learns from them, and takes the names unless you say 'none'.",
        ),
    ] = None,
    tail: Annotated[
        str | None,
        typer.Option(
            metavar="T|auto",
            help="Set the tail dial of the model, from 0 to 1: how much rare labels are favoured. auto finds the best "
            "position on a tenth of the rows, for two to three times the time.",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores by default.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory to hold at most, such as 2GB: fewer threads, or a refusal."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from what an interrupted run with the same arguments finished.")
    ] = False,
    cluster: OnCluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Give the figures as one JSON object.")] = False,
) -> None:
    """Train a recipe on a data set and save the model."""
    unfinished = out.resolve().with_name(out.resolve().name + ".unfinished")
    with step("preparing", outcome=lambda: _outcome(unfinished, resume)), ExitStack() as scope:
        from longtail.corpus import load
        from longtail.engine.memory import parse_memory, peak_memory, watched_command
        from longtail.engine.progress import show_progress
        from longtail.engine.spool import holds_blocks_only, resumable
        from longtail.store import Model
        from longtail.store.manifest import check_target

        used_propensity = parse_propensity(propensity) if propensity else published_propensity(train)
        parameters = parse_settings(settings or [])
        dial = None if tail is None else parse_tail(tail)
        if dial is not None and {"tail", "first"} & set(parameters):
            raise ParameterError("--tail", tail, "and --set tail or first are given: give only one of them")
        plan = compose(
            recipe, parameters, used_propensity, threads=threads, seed=seed, memory_limit=memory_limit, tail=dial
        )
        if is_first():
            check_target(out)
        scope.enter_context(on_cluster(cluster, threads, memory_limit))
        watch = None if memory_limit is None else scope.enter_context(watched_command())
        with show_progress(is_first()), step(f"reading {train}"):
            dataset = load(train)
        if not dataset.Y.nnz:
            raise InputError("has no labels: there is nothing to learn.", path=train)
        give_labels(plan, dataset, tree, label_texts)
        learner, rows = ready(plan, parameters, dataset, train)
        if is_first() and resume and unfinished.is_dir() and any(unfinished.iterdir()):
            note(f"Looking in {unfinished.name} for what an interrupted run had finished.")
        elif is_first() and resume:
            note(f"There is nothing to resume in {unfinished.name}: training starts anew.")
        anew = is_first() and not resume
        if anew and unfinished.is_dir() and holds_blocks_only(unfinished) and any(unfinished.iterdir()):
            note(
                "Starting anew: what an interrupted run had finished is discarded. With --resume, a run with the "
                "same data and the same parameters goes on from it."
            )
        with resumable(unfinished, anew=anew, discard=is_first()):
            start = time.perf_counter()
            with show_progress(is_first()), step("training"):
                learner.fit(rows, dataset.Y)
            if not is_first():
                return
            figures = {
                "seconds": round(time.perf_counter() - start, 3),
                "rows": dataset.n_rows,
                "features": learner.n_features_in_,
                "labels": dataset.n_labels,
            }
            figures |= _dial_of(learner) | _recall_of(learner)
            with step("saving the model"):  # what is finished is kept until it is saved
                Model(
                    without_threads(learner),
                    label_names=dataset.label_names,
                    propensity=used_propensity,
                    recipe=recipe,
                    training={**figures, "data": dataset.name},
                ).save(out)
    if watch is not None and memory_limit is not None and watch.peak > parse_memory(memory_limit):
        note(f"The memory limit of {memory_limit} was passed: {watch.peak / 1e6:,.0f} MB were held at the peak.")
    figures["peak_memory_mb"] = round(peak_memory() / 1e6, 1)
    figures["model_mb"] = round(sum(file.stat().st_size for file in out.iterdir()) / 1e6, 3)
    if as_json:
        give_json(figures)
        note(f"Saved to {out}.")
    else:
        give(
            f"Trained {recipe} on {figures['rows']:,} rows{_of_what(learner)} and "
            f"{figures['labels']:,} labels in {figures['seconds']:,.1f} s.\n"
            f"Saved {figures['model_mb']:,.1f} MB to {out}; peak memory {figures['peak_memory_mb']:,.0f} MB."
            + _told(figures)
        )


def is_first() -> bool:
    """Whether this process writes: the only one, or the first of those that torchrun started."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def _of_what(learner: Learner) -> str:
    """How wide the rows are: features, or tokens at which texts are cut."""
    from longtail.corpus.token_rows import Tokens

    is_cut = isinstance(getattr(learner, "features_", None), Tokens)
    return f" of up to {learner.n_features_in_:,} tokens" if is_cut else f", {learner.n_features_in_:,} features"


def give_labels(plan: TextLearner, dataset: Dataset, tree: Path | None, label_texts: str | None) -> None:
    """Hand the learner what is known of the labels: their tree, or a text for each."""
    from longtail.learners.base import nested

    parts = list(nested(plan))
    where = next((path for path, part in parts if "tree" in part.get_params(deep=False)), None)
    reads = label_texts_of(plan)
    if reads is not None and label_texts is None and dataset.label_names is not None:
        label_texts = "names"
    if label_texts == "none":
        label_texts = None
    if tree is not None and where is None:
        raise ParameterError("--tree", str(tree), "is for recipes of label trees; longtail recipes lists them")
    if label_texts is not None and where is None and reads is None:
        what = "is for recipes of label trees, and for xgrank and its forms"
        raise ParameterError("--label-texts", label_texts, what)
    names = dataset.label_names or [str(label) for label in range(dataset.n_labels)]
    if label_texts == "names" and dataset.label_names is None:
        raise ParameterError("--label-texts", label_texts, "must be a file, because the labels have no names")
    if tree is not None:
        from longtail.corpus import read_hierarchy

        plan.set_params(**{f"{where}tree": read_hierarchy(tree).pairs(names)})
    if label_texts is not None:
        texts = list(names)
        if label_texts != "names":
            path = Path(label_texts)
            if not path.is_file():
                raise InputError("is no file: give a file with a text for each label, or 'names'.", path=path)
            from longtail.corpus.hierarchy import read_text

            texts = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
        if len(texts) != dataset.n_labels:
            lines = f"{len(texts):,} line" + "s" * (len(texts) != 1)
            raise InputError(
                f"has {lines}, and the data set {dataset.n_labels:,} labels: give a line a label.",
                path=label_texts,
            )
        plan.set_params(**{reads or f"{where}representation": texts})


def ready(plan: TextLearner, parameters: dict[str, Any], dataset: Dataset, source: str) -> tuple[Learner, Any]:
    """Give the learner and the rows for it, after its kernels were compiled or read from their cache."""
    from sklearn.base import clone

    from longtail.corpus import Tfidf
    from longtail.learners import NeuralClassifier
    from longtail.learners.base import nested

    if dataset.X is not None:
        for name in filter(lambda name: name == "features" or name.startswith(FEATURES), parameters):
            raise ParameterError(name, parameters[name], f"is for texts, and {source} holds features")
    if any(isinstance(part, NeuralClassifier) for _, part in nested(plan)):
        if dataset.texts is None:
            raise InputError("holds features, and the recipe takes texts: give rows with texts.", path=source)
        return plan, dataset.texts
    if dataset.X is None and not isinstance(plan.features, Tfidf):
        return plan, dataset.texts
    small = clone(plan).set_params(features__min_rows=1, features__max_features=None)
    of_data = {"memory_limit": None, "tree": None, "representation": "centroids", "leaf_size": 1}
    for _, part in nested(small):
        part.set_params(**{name: value for name, value in of_data.items() if hasattr(part, name)})
    small.fit(["one word", "two words"], [[1, 0], [0, 1]])
    if dataset.X is not None and plan.learner is not None:
        return plan.learner, dataset.X
    return plan, dataset.texts


def _outcome(unfinished: Path, resume: bool) -> str:
    kept = unfinished.is_dir() and any(unfinished.iterdir())
    how = "The same command goes on from there." if resume else "Add --resume to the command to go on from there."
    return "No model was written." + (f" {how}" if kept else "")


def _dial_of(learner: Learner) -> dict[str, float]:
    """Position of the tail dial, where the model has one."""
    from longtail.learners import TextLearner
    from longtail.tail import TailDial

    part = learner.learner_ if isinstance(learner, TextLearner) else learner
    if not isinstance(part, TailDial):
        return {}
    return {"tail": part.tail_} | ({"first": part.first_} if part.first_ != part.tail_ else {})


def _told(figures: dict[str, Any]) -> str:
    """Say where the tail dial is, and what a first stage lets through."""
    told = ""
    if "recall" in figures:
        told = f"\nThe retrieving stage lets {100 * figures['recall']:.1f} % of the true labels through."
    if "tail" not in figures:
        return told
    first = f" for the first place, and at {figures['tail']:g} for the others" if "first" in figures else ""
    return f"{told}\nThe tail dial is at {figures['first' if first else 'tail']:g}{first}."


def _recall_of(learner: Learner) -> dict[str, float]:
    """Share of the true labels that the first stage of a network lets through, where there is one."""
    from longtail.learners import NeuralClassifier

    part: Any = learner
    while not isinstance(part, NeuralClassifier):
        part = getattr(part, "learner_", None)
        if part is None:
            return {}
    return {"recall": round(part.recall_, 4)} if part.recall_ < 1 else {}


def without_threads(learner: Learner) -> Learner:
    """Forget threads, memory limit and device: they belong to this run, and the model will be used elsewhere."""
    for name in ("threads", "memory_limit"):
        if hasattr(learner, name):
            setattr(learner, name, None)
    if hasattr(learner, "device"):
        learner.device = "auto"
    for part in vars(learner).values():
        if hasattr(part, "get_params"):
            without_threads(part)
    return learner
