"""How a command runs and ends: results on standard output, all else on standard error, and an exit code."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import typer

from longtail.errors import DiskError, InputError, Interrupted, LongtailError, ParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USER_ERROR, INTERNAL_ERROR, INTERRUPTED, TERMINATED = 2, 1, 130, 143

Arguments = ParamSpec("Arguments")
_terminated = False
_LEAST_TEXT = 20  # characters of a column of text that is wrapped
debugging = os.environ.get("LONGTAIL_DEBUG", "") not in ("", "0")


def set_debugging() -> None:
    """Show the tracebacks of errors."""
    global debugging
    debugging = True


def guarded(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Turn any exception of a command into one line on standard error and an exit code."""

    @functools.wraps(command)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        from longtail.runtime.progress import show_progress

        try:
            with show_progress(is_first()):
                command(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            _fail(str(error) or "Stopped.", TERMINATED if _terminated else INTERRUPTED)
        except BrokenPipeError:  # the reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except LongtailError as error:
            _fail(str(error), USER_ERROR)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _fail(f"{place}{error.strerror or error}.", USER_ERROR)
        except MemoryError:
            _fail("There is not enough memory: use fewer threads, fewer rows or a larger machine.", INTERNAL_ERROR)
        except Exception as error:
            if isinstance(error, typer.Exit):
                raise
            _fail(
                f"internal error in longtail ({type(error).__name__}: {error}): "
                "run the command again with longtail --debug and report the traceback.",
                INTERNAL_ERROR,
            )

    return call


def is_first() -> bool:
    """Return whether this process is the only one, or the first of those that torchrun started: it alone writes."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


@contextmanager
def step(doing: str, *, outcome: str | Callable[[], str] = "") -> Iterator[None]:
    """Add to the message of an interruption or of a full disk what was being done and what became of it."""
    try:
        yield
    except DiskError as error:
        became = outcome if isinstance(outcome, str) else outcome()
        error.args = (f"{error} {became}".rstrip(),)
        raise
    except KeyboardInterrupt as error:
        first = error.__context__ if isinstance(error.__context__, Interrupted) else error  # Ctrl-C may come twice
        stopped = str(first) if isinstance(first, Interrupted) else f"Stopped while {doing}."
        became = outcome if isinstance(outcome, str) else outcome()
        raise Interrupted(f"{stopped} {became}".rstrip()) from None


@contextmanager
def run_settings(
    cluster: str | None = None, threads: int | None = None, memory_limit: str | None = None
) -> Iterator[None]:
    """Set the threads and the memory limit of a command, and the cluster that it runs on."""
    from longtail.config import config_context, parse_memory

    if memory_limit is not None:
        parse_memory(memory_limit, "--memory-limit")
    with (
        named_as(memory_limit="--memory-limit", min_df="--set features.min_df"),
        config_context(n_jobs=threads, memory_limit=memory_limit),
        _engine(cluster, memory_limit),
    ):
        yield


def _engine(cluster: str | None, memory_limit: str | None) -> AbstractContextManager[None]:
    if cluster is None:
        return nullcontext()
    from longtail.runtime.memory import limit_of_a_cluster
    from longtail.runtime.ray.connection import check_address
    from longtail.runtime.ray.engine import use_engine

    check_address(cluster, "--cluster", "must be auto, local or host:port")
    if cluster == "local" and memory_limit is not None:
        raise limit_of_a_cluster("--memory-limit", memory_limit)
    return use_engine("ray", address=None if cluster == "local" else cluster)


@contextmanager
def errors_of(path: str | Path) -> Iterator[None]:
    """Name a file or a directory in the input errors raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(error.reason, path=error.path or path, line=error.line) from None


@contextmanager
def named_as(**options: str) -> Iterator[None]:
    """Name options in place of parameters in the errors raised inside: ``named_as(k="-k")``."""
    try:
        yield
    except ParameterError as error:
        raise error.renamed(options.get(error.name, error.name)) from None


def note(message: str) -> None:
    """Print a message on standard error."""
    typer.echo(message, err=True)


def output(message: str) -> None:
    """Print a result on standard output."""
    typer.echo(message)


def output_json(values: Mapping[str, Any]) -> None:
    """Print the result as one JSON object."""
    typer.echo(json.dumps(values, ensure_ascii=False, allow_nan=False))


def save_plot(figure: Figure, path: Path) -> None:
    """Save a plot, and print its path on standard error."""
    from longtail.plots.style import save

    with step(f"plotting {path}"):
        save(figure, path)
    note(f"Wrote {path}.")


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def output_table(title: str, columns: list[str], rows: list[list[str]], *, text_columns: int = 1) -> None:
    """Print the result as a table; the first `text_columns` columns are text, the others numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_header=any(columns), show_edge=False, pad_edge=False)
    needed = 0
    for index, column in enumerate(columns):
        number = index >= text_columns
        fixed = number or index == 0  # other text is wrapped where the terminal is too narrow
        table.add_column(column, justify="right" if number else "left", no_wrap=fixed)
        needed += max(map(cell_len, [column, *(row[index] for row in rows)])) if fixed else _LEAST_TEXT
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if _is_terminal() else 200, markup=False, emoji=False, highlight=False)
    if console.width < needed + 3 * len(columns):
        table.padding = (0, 1, 0, 0)
        console.width = max(console.width, needed + 2 * len(columns))  # a long line is better than "0.…"
    with console.capture() as captured:
        console.print(table)
    output("\n".join([title, *(line.rstrip() for line in captured.get().splitlines())]))


def show_error(message: str, code: int) -> int:
    """Print the message of an error on standard error, and return its exit code."""
    if debugging:
        traceback.print_exc()
    label = typer.style("error: ", fg=typer.colors.RED) if code not in (INTERRUPTED, TERMINATED) else ""
    note(label + " ".join(message.split()))
    return code


def _fail(message: str, code: int) -> NoReturn:
    raise typer.Exit(show_error(message, code))


def tidy_when_terminated() -> None:
    """Handle SIGTERM as Ctrl-C: finished work is kept, unfinished files are removed."""

    def stop(signum: int, frame: object) -> NoReturn:
        global _terminated
        _terminated = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the first one is handled already
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
