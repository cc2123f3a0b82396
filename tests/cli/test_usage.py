"""Wrong arguments and options of every command end in one line on standard error."""

from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from longtail.cli.program import program


def commands(group, *path):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


def kinds(option):
    annotation = option.type_descriptor.annotation
    return get_args(annotation) or (annotation,)


COMMANDS = dict(commands(typer.main.get_command(program)))
CHOICES = [
    (path, option)
    for path, command in COMMANDS.items()
    for option in command.params
    if option.type_descriptor.is_choice
]
NUMBERS = [
    (path, option)
    for path, command in COMMANDS.items()
    for option in command.params
    if option.param_type_name == "option" and {int, float} & set(kinds(option))
]


def error_of(*arguments):
    """Run a command that must be refused; return the line on standard error."""
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("\n")
    return result.stderr.removesuffix("\n")


def arguments_of(command):
    return ["x" for param in command.params if param.param_type_name == "argument" and param.required]


def name_of(value):
    return " ".join(value) if isinstance(value, tuple) else getattr(value, "name", None)


@pytest.mark.parametrize("path", COMMANDS, ids=name_of)
def test_an_unknown_option(path):
    error = error_of(*path, *arguments_of(COMMANDS[path]), "--no-such-option")
    assert error.startswith("error: --no-such-option is not an option of longtail")
    assert error.endswith(f"See longtail {' '.join(path)} --help.")


@pytest.mark.parametrize("path", COMMANDS, ids=name_of)
def test_a_missing_or_an_extra_argument(path):
    command = COMMANDS[path]
    required = [param for param in command.params if param.required]
    if required:
        assert "is missing. See longtail" in error_of(*path)
    elif not any(param.param_type_name == "argument" for param in command.params):
        assert "unexpected" in error_of(*path, "x")


@pytest.mark.parametrize(("path", "option"), CHOICES, ids=name_of)
def test_a_wrong_choice(path, option):
    error = error_of(*path, *arguments_of(COMMANDS[path]), option.opts[-1], "wrong")
    choices = ", ".join(option.type_descriptor.choices)
    assert error.startswith(f"error: {option.opts[-1]} must be one of {choices}, got 'wrong'. See longtail")


@pytest.mark.parametrize(("path", "option"), NUMBERS, ids=name_of)
def test_a_wrong_number(path, option):
    error = error_of(*path, *arguments_of(COMMANDS[path]), option.opts[-1], "wrong")
    assert error.startswith(f"error: {option.opts[-1]} must be a")
    assert "got 'wrong'. See longtail" in error


def test_there_are_choices_and_numbers():
    assert {option.opts[-1] for _, option in CHOICES} >= {"--correction", "--method", "--bins", "--format", "--pick"}
    assert {option.opts[-1] for _, option in NUMBERS} >= {"-k", "--seed", "--port"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("trian",), "error: No such command 'trian'. Did you mean 'train'? See longtail --help."),
        (("data", "stat"), "error: No such command 'stat'. Did you mean 'stats'? See longtail data --help."),
        (("--no-such-option",), "error: --no-such-option is not an option of longtail. See longtail --help."),
        (("train", "a", "b", "--ot", "m"), "--ot is not an option of longtail train (did you mean --out?)."),
        (("train", "a"), "error: TRAIN is missing. See longtail train --help."),
        (("train", "a", "b"), "error: --out is missing. See longtail train --help."),
        (("train", "a", "b", "--out"), "error: --out requires an argument."),
        (("evaluate", "a", "b", "--json=1"), "error: --json does not take a value."),
        (("evaluate", "a", "b", "-k"), "error: -k requires an argument."),
        (("serve", "a", "--port", "99999"), "error: --port must be an integer from 0 to 65535, got '99999'."),
        (("tree", "a", "--depth", "-1"), "error: --depth must be an integer of at least 0, got '-1'."),
        (("evaluate", "a", "b", "--tail", "2"), "error: --tail must be a number from 0 to 1, got '2'."),
    ],
)
def test_messages(arguments, error):
    assert error in error_of(*arguments)


def test_a_program_without_arguments_prints_its_help():
    result = CliRunner().invoke(program, [])
    assert result.exit_code == 2
    assert "Usage: longtail" in result.output
