"""`longtail train`: from a data set to a saved model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from longtail.cli.arguments import parse_parameters, parse_tail, propensity_for
from longtail.cli.console import guarded, is_first, note, output, output_json, run_settings, step
from longtail.cli.options import (
    AsJson,
    Cluster,
    LabelTexts,
    MemoryLimit,
    NewModel,
    OwnTree,
    PropensityConstants,
    RecipeName,
    Seed,
    SetOptions,
    Threads,
    TrainRows,
    tail_option,
)
from longtail.errors import ParameterError, counted

if TYPE_CHECKING:
    from longtail.learners import Learner


@guarded
def train(
    recipe: RecipeName,
    train: TrainRows,
    out: NewModel,
    settings: SetOptions = None,
    propensity: PropensityConstants = None,
    tree: OwnTree = None,
    label_texts: LabelTexts = None,
    tail: Annotated[
        str | None,
        tail_option(
            metavar="T|auto",
            more="auto finds the best position on a tenth of the rows; training then takes two to three times as long.",
        ),
    ] = None,
    threads: Threads = None,
    seed: Seed = 0,
    memory_limit: MemoryLimit = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run of the same command from what it finished.")
    ] = False,
    cluster: Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Train a recipe on a data set and save the model."""
    unfinished = out.resolve().with_name(out.resolve().name + ".unfinished")
    with step("preparing", outcome=lambda: _outcome(unfinished, resume)):
        from longtail.cli.preparation import prepare
        from longtail.recipes.compose import compose
        from longtail.store import Model
        from longtail.store.manifest import check_target

        parameters, dial = parse_parameters(settings), None if tail is None else parse_tail(tail)
        if dial is not None and {"tail", "first_tail"} & set(parameters):
            raise ParameterError("--tail", tail, "and --set tail or first_tail are given: give only one of them")
        known = propensity_for(propensity, train)
        plan = compose(recipe, parameters, known, random_state=seed, tail=dial)
        if is_first():
            check_target(out)
        with run_settings(cluster, threads, memory_limit), _watched(memory_limit):
            learner, rows, dataset = prepare(plan, parameters, train, tree, label_texts)
            with _resumable(unfinished, resume):
                start = time.perf_counter()
                with step("training"), _compilation_noted():
                    learner._fit_unchecked(rows, dataset.Y)  # compose has checked the parameters
                if not is_first():
                    return
                figures = {
                    "seconds": round(time.perf_counter() - start, 3), "rows": dataset.n_rows,
                    "features": learner.n_features_in_, "labels": dataset.n_labels, **_stage_figures(learner, recipe),
                }  # fmt: skip
                training = {**figures, "data": dataset.name}
                model = Model(
                    learner, label_names=dataset.label_names, propensity=known, recipe=recipe, training=training
                )
                with step("saving the model"):  # finished blocks are kept until it is saved
                    model.save(out)
    _report(recipe, figures, out, as_json)


def _outcome(unfinished: Path, resume: bool) -> str:
    kept = unfinished.is_dir() and any(unfinished.iterdir())
    if not kept:
        return "No model was written."
    how = "run the same command again" if resume else "run the same command with --resume"
    return f"No model was written. What was finished is kept in {unfinished.name}: {how} to continue."


@contextmanager
def _watched(memory_limit: str | None) -> Iterator[None]:
    """Note whether the memory limit was exceeded."""
    if memory_limit is None:
        yield
        return
    from longtail.config import parse_memory
    from longtail.runtime.disk import shown_size
    from longtail.runtime.memory import watched_command

    with watched_command() as watch:
        yield
    if is_first() and watch.peak > parse_memory(memory_limit):
        note(f"The memory limit of {memory_limit} was exceeded: the peak was {shown_size(watch.peak)}.")


@contextmanager
def _resumable(unfinished: Path, resume: bool) -> Iterator[None]:
    """Keep finished blocks in a directory until the model is saved, and resume from those of an earlier run."""
    from longtail.runtime.block_file import holds_blocks_only, resumable

    has_blocks = unfinished.is_dir() and any(unfinished.iterdir())
    if is_first() and resume:
        note(
            f"Looking in {unfinished.name} for what an interrupted run had finished."
            if has_blocks
            else f"There is nothing to resume in {unfinished.name}: training starts from the beginning."
        )
    elif is_first() and has_blocks and holds_blocks_only(unfinished):
        note(
            "Starting from the beginning: what an interrupted run had finished is discarded. With --resume, a run with "
            "the same data and the same parameters resumes from it."
        )
    with resumable(unfinished, restart=is_first() and not resume, discard=is_first()):
        yield


@contextmanager
def _compilation_noted() -> Iterator[None]:
    """Note that kernels are compiled, where they are not in the cache."""
    from numba.core import event

    class Compilation(event.Listener):
        is_noted = not is_first()

        def on_start(self, event: object) -> None:
            if not self.is_noted:
                self.is_noted = True
                note("Compiling kernels: only the first run of a learner after an installation takes this time.")

        def on_end(self, event: object) -> None:
            pass

    with event.install_listener("numba:compile", Compilation()):
        yield


def _stage_figures(learner: Learner, recipe: str) -> dict[str, float]:
    """Return the position of the tail dial, and the recall of a network's first stage, where there are such parts."""
    from longtail.recipes.compose import is_network

    figures: dict[str, float] = {}
    dial = next((vars(part) for _, part in learner.parts(fitted=True) if hasattr(part, "first_tail_")), None)
    if dial is not None:
        figures["tail"] = dial["tail_"]
        if dial["first_tail_"] != dial["tail_"]:
            figures["first_tail"] = dial["first_tail_"]
    if is_network(recipe):
        from longtail.learners import NeuralClassifier

        network = learner.find(NeuralClassifier)
        if network is not None and network.recall_ < 1:
            figures["recall"] = round(network.recall_, 4)
    return figures


def _report(recipe: str, figures: dict[str, Any], out: Path, as_json: bool) -> None:
    from longtail.recipes.compose import is_network
    from longtail.runtime.disk import directory_size, shown_size
    from longtail.runtime.memory import peak_memory

    figures["peak_memory_mb"] = round(peak_memory() / 1e6, 1)
    figures["model_mb"] = round(directory_size(out) / 1e6, 3)
    if as_json:
        output_json(figures)
        note(f"Saved to {out}.")
        return
    width = (
        f" of up to {figures['features']:,} tokens"
        if is_network(recipe)
        else f", {counted(figures['features'], 'feature')}"
    )
    saved, peak = (shown_size(1e6 * figures[name]) for name in ("model_mb", "peak_memory_mb"))
    lines = [
        f"Trained {recipe} on {counted(figures['rows'], 'row')}{width} and {counted(figures['labels'], 'label')} "
        f"in {figures['seconds']:,.1f} s.",
        f"Saved {saved} to {out}; peak memory {peak}.",
    ]
    if "recall" in figures:
        lines.append(f"The retrieval stage finds {100 * figures['recall']:.1f} % of the true labels.")
    if "first_tail" in figures:
        lines.append(
            f"The tail dial is at {figures['first_tail']:g} for rank 1, and at {figures['tail']:g} for the others."
        )
    elif "tail" in figures:
        lines.append(f"The tail dial is at {figures['tail']:g}.")
    output("\n".join(lines))
