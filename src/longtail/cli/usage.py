"""Usage errors, reported in one line like all other errors."""

from __future__ import annotations

import inspect
import sys
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from longtail.cli.console import INTERRUPTED, USER_ERROR, note, show_error
from longtail.errors import ParameterError

# Typer re-exports only one of click's usage errors, the others are told apart by their class names.
_UsageError: Any = typer.BadParameter.__base__


class OneLineErrors(TyperGroup):
    """A group of commands that reports wrong arguments and options without a box."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and, in standalone mode, exit."""
        standalone_mode = options.pop("standalone_mode", True)
        try:
            code = super().main(*args, **options | {"standalone_mode": False})
        except _UsageError as error:
            code = _report(error)
        except typer.Abort:
            code = show_error("Stopped.", INTERRUPTED)
        except SystemExit as end:
            if not isinstance(
                end.__context__, BrokenPipeError
            ):  # the reader of the help, such as head, has seen enough
                raise
            code = 0
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _report(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        if error.message:
            note(error.message)
        return USER_ERROR
    command = error.ctx.command_path if error.ctx else ""
    hint = f" See {command} --help." if command else ""
    return show_error(_sentence(error, command) + hint, USER_ERROR)


def _sentence(error: Any, command: str) -> str:
    """Return what is wrong: the parameter, and what its value must be."""
    kind = type(error).__name__
    param = getattr(error, "param", None)
    if kind == "NoSuchOption":
        hint = f" (did you mean {error.possibilities[0]}?)" if error.possibilities else ""
        return f"{error.option_name} is not an option of {command}{hint}."
    if kind == "BadOptionUsage":
        return str(error.message).replace(f"Option {error.option_name!r}", str(error.option_name))
    if param is None:
        message = str(error.format_message())
        return message if message.endswith((".", "?")) else f"{message}."
    name = param.opts[-1] if param.param_type_name == "option" else param.metavar
    if kind == "MissingParameter":
        return f"{name} is missing."
    found = getattr(error.__cause__, "errors", None)
    given = found()[0]["input"] if found else str(error.message).partition(" ")[0].strip("'")
    return str(ParameterError(name, given, f"must be {_requirement(error.ctx.command, param.name)}"))


def _requirement(command: Any, name: str) -> str:
    """Return what the value of a parameter must be, by its annotation."""
    from longtail.validation import Integer, Number, OneOf

    hint = get_type_hints(inspect.unwrap(command.callback), include_extras=True)[name]
    annotation, limits = hint.__origin__, hint.__metadata__[0]
    if get_origin(annotation) is not Literal:
        annotation = next((part for part in get_args(annotation) if part is not NoneType), annotation)
    if get_origin(annotation) is Literal:
        return OneOf(*get_args(annotation)).requirement
    if annotation is int and limits.min is not None and limits.max is not None:
        return Integer(limits.min, limits.max).requirement
    requirement = Number(low=limits.min, high=limits.max).requirement.rstrip()
    return requirement.replace("a number", "an integer") if annotation is int else requirement
