"""`longtail reproduce`: the papers' tables and figures beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.app.cli.arguments import check_out_file
from longtail.app.cli.clusters import OnCluster, on_cluster
from longtail.app.cli.console import give, give_table, guarded, note, step
from longtail.app.cli.tune import seconds_of
from longtail.errors import ParameterError

if TYPE_CHECKING:
    from longtail.app.reproduce.figures import Figure
    from longtail.app.reproduce.jobs import Job, Result, Runner
    from longtail.app.reproduce.panels import Panel
    from longtail.app.reproduce.papers import Table
    from longtail.app.reproduce.sets import AtHand
    from longtail.app.reproduce.tables import Cell, Gain

_RESULTS = "results"
_FAILED = 2


@guarded
def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Such as pw-3 or ranknet-figure-2; or results, for all recipes and tables.",
            show_default=False,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Name all tables and figures.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="A folder for each data set, with train and test files in it."),
    ] = None,
    stand_ins: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME...",
            help="Data sets that stand in for the paper's; all at hand by default, but up to 30,000 rows where one "
            "parameter after the other is tried.",
        ),
    ] = None,
    networks: Annotated[bool, typer.Option("--networks", help="Train networks too: hours on a CPU.")] = False,
    limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Most time of one training, such as 30m; it is left out then.")
    ] = None,
    known: Annotated[bool, typer.Option("--known", help="Train nothing: show what has run.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Every core by default.")] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", help="Where results are kept; the user's cache by default."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write Markdown there too.")] = None,
    cluster: OnCluster = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw gains, a figure, or both numbers: .svg, .png or .pdf."),
    ] = None,
) -> None:
    """Run our recipes for a table or figure of the five papers, and put them beside what was printed.

    What has run once is kept, by the content of the data and the recipe: a run that was stopped goes on where it was.
    """
    from longtail.app.reproduce.papers import find_table, tables

    if listed or table is None:
        rows = [[key, known.shows, str(len(known.rows))] for key, known in tables().items()]
        give_table("Tables and figures", ["TABLE", "what it shows", "rows"], rows, text_columns=2)
        return
    if table != _RESULTS:
        find_table(table)
    kept = "What has ended is kept, and the same command goes on from there."
    with step("reproducing", outcome=kept), ExitStack() as scope:
        from longtail.app.pictures.style import check_picture
        from longtail.app.reproduce.jobs import Runner
        from longtail.app.reproduce.sets import SWEPT_ROWS, at_hand

        if out is not None:
            check_out_file(out)
        if plot is not None:
            check_picture(plot)
        sets = at_hand(data)
        chosen = list(sets) if stand_ins is None else _chosen(stand_ins, sets)
        swept = [name for name in chosen if stand_ins is not None or sets[name].n_rows <= SWEPT_ROWS]
        scope.enter_context(on_cluster(cluster, threads))
        runner = Runner(results, threads, None if limit is None else seconds_of(limit, "--limit"), known)
        work = _Work(sets, chosen, swept, networks, runner, table == _RESULTS)
        section = work.page(out) if table == _RESULTS else work.section(table)
    if out is not None:
        out.write_text(section.text, encoding="utf-8")
        note(f"Wrote {out}.")
    if plot is not None:
        _draw(section, plot)
    if table != _RESULTS or out is None:
        give(section.text)
    if section.has_failed:
        note('No training of it has an outcome: why stands above, under "Not run".')
        raise typer.Exit(_FAILED)


@dataclass(frozen=True)
class _Section:
    """What is told of a table or figure, and what can be drawn of it."""

    text: str
    direct: Mapping[tuple[str, str], Sequence[Cell]] = field(default_factory=dict)
    gains: Sequence[Gain] = ()
    panels: Sequence[Panel] = ()
    has_failed: bool = False  # nothing ran, and something should have


@dataclass(frozen=True)
class _Work:
    """What is run on which data sets: `chosen` stand in, and in those of `swept` parameters are varied too."""

    sets: dict[str, AtHand]
    chosen: list[str]
    swept: list[str]
    networks: bool
    runner: Runner
    is_page: bool

    def section(self, key: str) -> _Section:
        """Run what a table or figure takes, and put it beside the paper's numbers."""
        from longtail.app.reproduce.figures import figures
        from longtail.app.reproduce.markdown import as_markdown
        from longtail.app.reproduce.papers import find_table
        from longtail.app.reproduce.tables import planned, reproduced

        table, figure = find_table(key), figures().get(key)
        if figure is not None:
            return self._figure(table, figure)
        jobs = planned(table, self.sets, self.networks, self.chosen, self.swept)
        done = _run(self.runner, jobs)
        found = reproduced(table, self.sets, done, self.networks, self.chosen)
        whole = planned(table, self.sets, self.networks, self.chosen)
        found.notes += self._not_swept([job.data.name for job in whole if job not in jobs])
        failed = self._failed(jobs)
        text = as_markdown(found, failed, with_paper=not self.is_page)
        return _Section(text, found.direct, found.gains, has_failed=bool(failed) and not done)

    def _figure(self, table: Table, figure: Figure) -> _Section:
        from longtail.app.reproduce.markdown import not_at_hand, not_run, printed
        from longtail.app.reproduce.tables import where_from

        jobs = [job for name in self.chosen for job in figure.jobs(self.sets[name], self.networks)]
        wanted = [job for job in jobs if not job.is_sweep or job.data.name in self.swept]
        done = _run(self.runner, wanted)
        at = [self.sets[name] for name in self.chosen]
        panels = [panel for data in at for panel in figure.panels(data, done)]
        lines = [f"## {table.key}", "", f"{table.shows} {table.paper}.", ""]
        lines += [line for panel in panels for line in panel.lines()]
        failed = self._failed(wanted)
        lines += printed(table)
        lines += not_at_hand({name: where_from(name) for name in table.datasets if name not in self.sets})
        lines += not_run({} if self.networks else figure.networks, failed)
        lines += [f"{told}\n" for told in self._not_swept([job.data.name for job in jobs if job not in wanted])]
        return _Section("\n".join(lines), panels=panels, has_failed=bool(failed) and not done)

    def _failed(self, jobs: list[Job]) -> dict[Job, str]:
        return {job: why for job, why in self.runner.failed.items() if job in jobs}

    def _not_swept(self, names: list[str]) -> list[str]:
        left = [name for name in dict.fromkeys(names) if name not in self.swept]
        return [f"One parameter after the other is not tried on {', '.join(left)}: --stand-ins does."] if left else []

    def page(self, out: Path | None) -> _Section:
        """Run everything, and make the page of all results."""
        from longtail.app.reproduce.jobs import Job
        from longtail.app.reproduce.page import all_recipes, all_signs, page
        from longtail.app.reproduce.papers import tables

        at, all_ours = [self.sets[name] for name in self.chosen], all_recipes(self.networks)
        jobs = [Job(data, mine) for mine in all_ours for data in at if data.has_texts or not mine.is_network]
        done = _run(self.runner, jobs)
        told = {key: self.section(key) for key in tables()}
        gains = [gain for section in told.values() for gain in section.gains]
        sections = [*all_signs(gains), "## The papers' tables", ""]
        sections += [section.text.replace("## ", "### ", 1) for section in told.values()]
        before = out.read_text(encoding="utf-8") if out is not None and out.is_file() else ""
        return _Section(page(at, all_ours, done, sections, before), gains=gains)


def _draw(section: _Section, plot: Path) -> None:
    """Draw gains; where there are none, a figure's panels, or the paper's numbers and ours."""
    if not (section.gains or section.panels or section.direct):
        note(f"There is nothing to draw, and {plot} was not written: no data set of the paper is at hand.")
        return
    with step(f"drawing {plot}"):
        from longtail.app.pictures.reproduced import cells_beside, gains_beside, panels_beside
        from longtail.app.pictures.style import save

        if section.gains:
            drawn = gains_beside(section.gains)
        else:
            drawn = panels_beside(section.panels) if section.panels else cells_beside(section.direct)
        save(drawn, plot)
    note(f"Wrote {plot}.")


def _run(runner: Runner, jobs: list[Job]) -> dict[Job, Result]:
    from longtail.engine.progress import progress_bar, show_progress

    new = [job for job in dict.fromkeys(jobs) if runner.known(job) is None]
    if not new:
        return runner.run(jobs, lambda what: None)
    if runner.known_only:
        note(f"{len(new)} of {len(set(jobs))} trainings are not known.")
        return runner.run(jobs, lambda what: None)
    note(f"{len(new)} of {len(set(jobs))} trainings are new.")
    with show_progress(), progress_bar("training", len(new), "models") as advance:
        begun = False

        def told(what: str) -> None:
            nonlocal begun
            advance(int(begun), what)
            begun = True

        return runner.run(jobs, told)


def _chosen(text: str, sets: dict[str, AtHand]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name not in sets), None)
    if unknown is not None:
        what = "must be at hand, as a folder with train and test files of one kind"
        raise ParameterError("--stand-ins", unknown, f"{what}: there are {', '.join(sets)}")
    return names
