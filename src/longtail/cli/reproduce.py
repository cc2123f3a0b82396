"""`longtail reproduce`: the tables and figures of the papers, with measured results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.cli.arguments import parse_names, parse_seconds
from longtail.cli.console import guarded, note, output, output_table, run_settings, save_plot, step
from longtail.cli.options import Cluster, Threads, plot_option
from longtail.errors import ParameterError
from longtail.runtime.disk import check_out_file

if TYPE_CHECKING:
    from longtail.reproduce.figures import Figure
    from longtail.reproduce.jobs import Job, JobResult, Runner
    from longtail.reproduce.markdown import Panel
    from longtail.reproduce.papers import PaperTable
    from longtail.reproduce.sets import AvailableSet
    from longtail.reproduce.tables import FigureNumber, Gain

_RESULTS = "results"
_FAILED = 2


@guarded
def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Table or figure, such as pw-3 or ranknet-figure-2; or results, for all recipes and tables.",
            show_default=False,
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List all tables and figures.")] = False,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory with one folder of train and test files per data set.")
    ] = None,
    stand_ins: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME...",
            help="Data sets to use in place of the paper's; by default all available ones, or those of up to 30,000 "
            "rows where parameters are varied.",
        ),
    ] = None,
    networks: Annotated[bool, typer.Option("--networks", help="Train networks too: hours on a CPU.")] = False,
    limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Maximum time per training run, such as 30m; others are left out."),
    ] = None,
    cached: Annotated[bool, typer.Option("--cached", help="Train nothing: show cached results.")] = False,
    threads: Threads = None,
    results: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of the results; by default in the user's cache.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write Markdown to this file.")] = None,
    cluster: Cluster = None,
    plot: Annotated[Path | None, plot_option("the gains or the figure")] = None,
) -> None:
    """Run the recipes for a table or figure of the five papers, and show the results beside the published ones.

    Results are cached by the content of the data and the recipe: a stopped run resumes where it was.
    """
    from longtail.reproduce.papers import find_table

    if listed or table is None:
        _list_tables()
        return
    if table != _RESULTS:
        find_table(table)
    with step("reproducing", outcome="Finished training runs are kept: the same command resumes from there."):
        from longtail.reproduce.jobs import Runner
        from longtail.reproduce.sets import SWEPT_ROWS, available_sets

        if out is not None:
            check_out_file(out, name="--out")
        sets = available_sets(data)
        chosen = list(sets) if stand_ins is None else _chosen(stand_ins, sets)
        swept = [name for name in chosen if stand_ins is not None or sets[name].n_rows <= SWEPT_ROWS]
        with run_settings(cluster, threads):
            runner = Runner(results, threads, None if limit is None else parse_seconds(limit, "--limit"), cached)
            work = _Work(sets, chosen, swept, networks, runner, table == _RESULTS)
            section = work.page(out) if table == _RESULTS else work.section(table)
    _write(section, out, plot, shown=table != _RESULTS or out is None)
    if section.has_failed:
        note('No training run of it has a result: the reasons are above, under "Not run".')
        raise typer.Exit(_FAILED)


def _list_tables() -> None:
    from longtail.reproduce.papers import tables

    rows = [[key, known.shows, str(len(known.rows))] for key, known in tables().items()]
    output_table("Tables and figures", ["TABLE", "what it shows", "rows"], rows, text_columns=2)


@dataclass(frozen=True)
class _Section:
    """The text of a table or figure, and what can be drawn of it."""

    text: str
    direct: Mapping[tuple[str, str], Sequence[FigureNumber]] = field(default_factory=dict)
    gains: Sequence[Gain] = ()
    panels: Sequence[Panel] = ()
    has_failed: bool = False  # whether all training runs failed


@dataclass(frozen=True)
class _Work:
    """The training runs: on the data sets of `chosen`, and with varied parameters on those of `swept`."""

    sets: dict[str, AvailableSet]
    chosen: list[str]
    swept: list[str]
    networks: bool
    runner: Runner
    is_page: bool

    def section(self, key: str) -> _Section:
        """Train the recipes of a table or figure, and write its results beside the published ones."""
        from longtail.reproduce.figures import figures
        from longtail.reproduce.markdown import as_markdown
        from longtail.reproduce.papers import find_table
        from longtail.reproduce.tables import planned, reproduced

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

    def _figure(self, table: PaperTable, figure: Figure) -> _Section:
        from longtail.reproduce.markdown import missing_sets, not_run, printed
        from longtail.reproduce.tables import where_from

        jobs = [job for name in self.chosen for job in figure.jobs(self.sets[name], self.networks)]
        wanted = [job for job in jobs if not job.is_sweep or job.data.name in self.swept]
        done = _run(self.runner, wanted)
        at = [self.sets[name] for name in self.chosen]
        panels = [panel for data in at for panel in figure.panels(data, done)]
        lines = [f"## {table.key}", "", f"{table.shows} {table.paper}.", ""]
        lines += [line for panel in panels for line in panel.lines()]
        failed = self._failed(wanted)
        lines += printed(table)
        lines += missing_sets({name: where_from(name) for name in table.datasets if name not in self.sets})
        lines += not_run({} if self.networks else figure.networks, failed)
        lines += [f"{line}\n" for line in self._not_swept([job.data.name for job in jobs if job not in wanted])]
        return _Section("\n".join(lines), panels=panels, has_failed=bool(failed) and not done)

    def _failed(self, jobs: list[Job]) -> dict[Job, str]:
        return {job: why for job, why in self.runner.failed.items() if job in jobs}

    def _not_swept(self, names: list[str]) -> list[str]:
        left = [name for name in dict.fromkeys(names) if name not in self.swept]
        return [f"Parameters are not varied on {', '.join(left)}: name these in --stand-ins."] if left else []

    def page(self, out: Path | None) -> _Section:
        """Train all recipes, and write the page of all results."""
        from longtail.reproduce.jobs import Job
        from longtail.reproduce.page import all_recipes, all_signs, page
        from longtail.reproduce.papers import tables

        at, configured = [self.sets[name] for name in self.chosen], all_recipes(self.networks)
        jobs = [Job(data, mine) for mine in configured for data in at if data.has_texts or not mine.is_network]
        done = _run(self.runner, jobs)
        written = {key: self.section(key) for key in tables()}
        gains = [gain for section in written.values() for gain in section.gains]
        sections = [*all_signs(gains), "## The papers' tables", ""]
        sections += [section.text.replace("## ", "### ", 1) for section in written.values()]
        before = out.read_text(encoding="utf-8") if out is not None and out.is_file() else ""
        return _Section(page(at, configured, done, sections, before), gains=gains)


def _write(section: _Section, out: Path | None, plot: Path | None, *, shown: bool) -> None:
    if out is not None:
        from longtail.data.streams import write_whole

        with write_whole(out) as file:
            file.write(section.text.encode())
        note(f"Wrote {out}.")
    if plot is not None:
        _draw(section, plot)
    if shown:
        output(section.text)


def _draw(section: _Section, plot: Path) -> None:
    """Draw gains; where there are none, the panels of a figure, or the published and the measured results."""
    if not (section.gains or section.panels or section.direct):
        note(f"There is nothing to draw, and {plot} was not written: no data set of the paper is available.")
        return
    from longtail.plots.papers import gains_beside, numbers_beside, panels_beside

    if section.gains:
        drawn = gains_beside(section.gains)
    else:
        drawn = panels_beside(section.panels) if section.panels else numbers_beside(section.direct)
    save_plot(drawn, plot)


def _run(runner: Runner, jobs: list[Job]) -> dict[Job, JobResult]:
    from longtail.runtime.progress import progress_bar

    new = [job for job in dict.fromkeys(jobs) if runner.cached(job) is None]
    if runner.cached_only and new:
        note(f"{len(new)} of {len(set(jobs))} training runs have no result.")
    if runner.cached_only or not new:
        return runner.run(jobs, lambda what: None)
    note(f"{len(new)} of {len(set(jobs))} training runs are new.")
    with progress_bar("training", len(new), "models") as advance:
        begun = False

        def show(what: str) -> None:
            nonlocal begun
            advance(int(begun), what)
            begun = True

        return runner.run(jobs, show)


def _chosen(text: str, sets: dict[str, AvailableSet]) -> list[str]:
    names = parse_names(text)
    unknown = next((name for name in names if name not in sets), None)
    if unknown is not None:
        what = "must be available, as a folder with train and test files of one kind"
        raise ParameterError("--stand-ins", unknown, f"{what}: there are {', '.join(sets)}")
    return names
