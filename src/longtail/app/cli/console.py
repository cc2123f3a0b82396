"""How a command ends: results on standard output, everything else on standard error, and an exit code."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, ParamSpec

import typer

from longtail.errors import DiskError, Interrupted, LongtailError

USER_MISTAKE, OUR_MISTAKE, INTERRUPTED, TERMINATED = 2, 1, 130, 143

Arguments = ParamSpec("Arguments")
_terminated = False
debugging = os.environ.get("LONGTAIL_DEBUG", "") not in ("", "0")


def set_debugging() -> None:
    """Show tracebacks from now on."""
    global debugging
    debugging = True


def guarded(command: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Turn whatever a command raises into one line on standard error and an exit code."""

    @functools.wraps(command)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            _fail(str(error) or "Stopped.", TERMINATED if _terminated else INTERRUPTED)
        except BrokenPipeError:  # the reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except LongtailError as error:
            _fail(str(error), USER_MISTAKE)
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _fail(f"{place}{error.strerror or error}.", USER_MISTAKE)
        except MemoryError:
            _fail("There is not enough memory: use fewer threads, fewer rows or a larger machine.", OUR_MISTAKE)
        except Exception as error:
            if isinstance(error, typer.Exit | typer.Abort | typer.BadParameter):
                raise
            _fail(
                f"This is a fault of longtail ({type(error).__name__}: {error}): "
                "run it again with longtail --debug and report what it shows.",
                OUR_MISTAKE,
            )

    return call


@contextmanager
def step(doing: str, *, outcome: str | Callable[[], str] = "") -> Iterator[None]:
    """Say what was being done, and what became of it, when Ctrl-C comes or the disk is full while the block runs."""
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


def note(message: str) -> None:
    """Tell the user something, on standard error."""
    typer.echo(message, err=True)


def give(message: str) -> None:
    """Give a result, on standard output."""
    typer.echo(message)


def give_json(values: Mapping[str, Any]) -> None:
    """Give one JSON object as the result."""
    typer.echo(json.dumps(values, ensure_ascii=False, allow_nan=False))


def give_table(title: str, columns: list[str], rows: list[list[str]], *, text_columns: int = 1) -> None:
    """Give a table as the result; the first `text_columns` are text, the others numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_header=any(columns), show_edge=False, pad_edge=False)
    for index, column in enumerate(columns):
        number = index >= text_columns
        table.add_column(column, justify="right" if number else "left", no_wrap=number or index == 0)
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    give("\n".join([title, *(line.rstrip() for line in captured.get().splitlines())]))


def _fail(message: str, code: int) -> NoReturn:
    if debugging:
        traceback.print_exc()
    label = typer.style("error: ", fg=typer.colors.RED) if code not in (INTERRUPTED, TERMINATED) else ""
    typer.echo(label + " ".join(message.split()), err=True)
    raise typer.Exit(code)


def tidy_when_terminated() -> None:
    """Stop as by Ctrl-C when asked to terminate: what is done is kept, unfinished files are removed."""

    def stop(signum: int, frame: object) -> NoReturn:
        global _terminated
        _terminated = True
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # asked once is enough
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
