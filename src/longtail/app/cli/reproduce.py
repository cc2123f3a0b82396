"""`longtail reproduce`: the papers' tables and figures beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longtail.app.cli.arguments import check_out_file
from longtail.app.cli.console import give, give_table, guarded, note, step
from longtail.app.cli.tune import seconds_of
from longtail.errors import ParameterError

if TYPE_CHECKING:
    from longtail.app.reproduce.jobs import Job, Result, Runner
    from longtail.app.reproduce.sets import AtHand
    from longtail.app.reproduce.tables import Reproduced

_RESULTS = "results"


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
        typer.Option(metavar="NAME,NAME...", help="Data sets that stand in for the paper's; all at hand by default."),
    ] = None,
    networks: Annotated[bool, typer.Option("--networks", help="Train networks too: hours on a CPU.")] = False,
    limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="Most time of one training, such as 30m; it is left out then.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Every core by default.")] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="DIR", help="Where results are kept; the user's cache by default."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write Markdown there too.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the gains: .svg, .png or .pdf.")
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
    with step("reproducing"):
        from longtail.app.pictures.style import check_picture
        from longtail.app.reproduce.jobs import Runner
        from longtail.app.reproduce.sets import at_hand

        if out is not None:
            check_out_file(out)
        if plot is not None:
            check_picture(plot)
        sets = at_hand(data)
        chosen = list(sets) if stand_ins is None else _chosen(stand_ins, sets)
        runner = Runner(results, threads, None if limit is None else seconds_of(limit, "--limit"))
        if table == _RESULTS:
            text, drawn = _page(sets, chosen, networks, runner, out), None
        else:
            text, drawn = _section(table, sets, chosen, networks, runner)
    if out is not None:
        out.write_text(text, encoding="utf-8")
        note(f"Wrote {out}.")
    if plot is not None and drawn is not None and drawn.gains:
        with step(f"drawing {plot}"):
            from longtail.app.pictures.reproduced import gains_beside
            from longtail.app.pictures.style import save

            save(gains_beside(drawn.gains), plot)
    elif plot is not None:
        note("There are no gains to draw.")
    if table != _RESULTS or out is None:
        give(text)


def _run(runner: Runner, jobs: list[Job]) -> dict[Job, Result]:
    from longtail.engine.progress import progress_bar, show_progress

    new = [job for job in dict.fromkeys(jobs) if runner.known(job) is None]
    if not new:
        return runner.run(jobs, lambda what: None)
    note(f"{len(new)} of {len(set(jobs))} trainings are new.")
    with show_progress(), progress_bar("training", len(new), "models") as advance:
        begun = False

        def told(what: str) -> None:
            nonlocal begun
            advance(int(begun), what)
            begun = True

        return runner.run(jobs, told)


def _section(
    key: str, sets: dict[str, AtHand], stand_ins: list[str], networks: bool, runner: Runner
) -> tuple[str, Reproduced | None]:
    from longtail.app.reproduce.figures import elsewhere, figures, told_of
    from longtail.app.reproduce.markdown import as_markdown
    from longtail.app.reproduce.papers import find_table
    from longtail.app.reproduce.tables import planned, reproduced

    table = find_table(key)
    if key in elsewhere():
        return f"## {key}\n\n{table.shows}\n\nRun: `{elsewhere()[key]}`.\n", None
    figure = figures().get(key)
    if figure is not None:
        at = [sets[name] for name in stand_ins]
        done = _run(runner, [job for data in at for job in figure.jobs(data)])
        return "\n".join([f"## {key}", "", table.shows, "", *told_of(figure, at, done)]), None
    done = _run(runner, planned(table, sets, networks, stand_ins))
    found = reproduced(table, sets, done, networks, stand_ins)
    return as_markdown(found, runner.failed), found


def _page(sets: dict[str, AtHand], chosen: list[str], networks: bool, runner: Runner, out: Path | None) -> str:
    from longtail.app.reproduce.jobs import Job
    from longtail.app.reproduce.page import all_recipes, page
    from longtail.app.reproduce.papers import tables

    at, all_ours = [sets[name] for name in chosen], all_recipes(networks)
    jobs = [Job(data, mine) for mine in all_ours for data in at if data.has_texts or not mine.is_network]
    done = _run(runner, jobs)
    sections = ["## The papers' tables", ""]
    for key in tables():
        sections.append(_section(key, sets, chosen, networks, runner)[0].replace("## ", "### ", 1))
    before = out.read_text(encoding="utf-8") if out is not None and out.is_file() else ""
    return page(at, all_ours, done, sections, before)


def _chosen(text: str, sets: dict[str, AtHand]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name not in sets), None)
    if unknown is not None:
        raise ParameterError("--stand-ins", unknown, f"must be at hand: there are {', '.join(sets)}")
    return names
