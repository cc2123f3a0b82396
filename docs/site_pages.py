"""Pages of the site that are generated at build time: the API, the command line, the recipes and the benchmark results.

mkdocs runs this file as a hook (see mkdocs.yml). Nothing that it makes is committed.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = (
    "longtail", "longtail.data", "longtail.datasets", "longtail.features", "longtail.propensity", "longtail.metrics",
    "longtail.losses", "longtail.weighting", "longtail.learners", "longtail.rerank", "longtail.store",
    "longtail.recipes", "longtail.report", "longtail.errors", "longtail.config",
)  # fmt: skip
INHERITED = {
    "Learner": ("predict", "predict_proba", "decision_function", "score", "parts", "find"),
    "EmbeddingClassifier": ("embed", "similar"),
}
"""Methods that learners have from mixins, not from another class with a page."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the benchmark results to those in docs/."""
    pages = {f"reference/api/{package.removeprefix('longtail.')}.md": api_page(package) for package in PACKAGES}
    pages |= {"reference/cli.md": cli_page(), "reference/recipes.md": recipes_page()}
    pages["benchmarks/results/index.md"] = results_index()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in {".md", ".svg", ".png"}:
            files.append(File.generated(config, f"benchmarks/results/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "benchmarks/README.md", abs_src_path=str(RESULTS.parent / "README.md")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between docs/ and benchmarks/ work in the repository; rewrite them for the site, whose root is docs/."""
    if page.file.src_uri.startswith("benchmarks/"):
        if not re.search(r"^# ", markdown, re.MULTILINE):
            markdown = f"# {title_of(Path(page.file.src_uri), markdown)}\n\n{markdown}"
        markdown = re.sub(r"\]\((?:\.\./)*docs/", f"]({'../' * page.file.src_uri.count('/')}", markdown)
        return re.sub(r"\[([^]]*)\]\((?!http)[^)#]*\.(?:py|json|sh|txt)\)", r"`\1`", markdown)
    depth = page.file.src_uri.count("/")
    return markdown.replace(f"]({'../' * (depth + 1)}benchmarks/", f"]({'../' * depth}benchmarks/")


def public_names(package: str) -> list[str]:
    """What a package offers: its ``__all__``, or else what it defines."""
    module = importlib.import_module(package)
    defined = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == package]
    return list(getattr(module, "__all__", None) or [name for name in defined if not name.startswith("_")])


def api_page(package: str) -> str:
    """One page of the API reference: every public name of a package, from its docstring."""
    module = importlib.import_module(package)
    names = [name for name in public_names(package) if name not in {"__version__", "datasets"}]
    lines = [f"# {package}", "", inspect.getdoc(module) or "", ""]
    if package == "longtail":
        homes = {name: other for other in reversed(PACKAGES[1:]) for name in public_names(other)}
        lines += ["| name | |", "|---|---|"]
        for name in sorted((name for name in names if name in homes), key=str.lower):
            summary = (inspect.getdoc(getattr(module, name)) or "").split("\n\n")[0].replace("\n", " ")
            lines.append(f"| [`{name}`][{homes[name]}.{name}] | {plain(summary)} |")
        names = [name for name in names if name not in homes]
    first = ["Learner", *public_names("longtail")]
    for name in sorted(names, key=lambda name: (first.index(name) if name in first else len(first), name.lower())):
        lines += ["", f"::: {package}.{name}"]
        if name in INHERITED:
            lines += ["    options:", f"      inherited_members: [{', '.join(INHERITED[name])}]"]
        lines.append("")
    return "\n".join(lines)


def cli_page() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    from longtail.cli.program import program

    lines = [
        "# Command line", "",
        "Results go to standard output; progress bars, notes and errors go to standard error. TRAIN, TEST, INPUT and "
        "SOURCE are a file in any of the [formats](data-formats.md), or the name of a data set, with a split if it is "
        "not the training rows: `debian-tags:test`. `longtail COMMAND --help` shows the same options.", "",
        "| exit code | meaning |", "|---|---|",
        "| 0 | done |",
        "| 1 | internal error in longtail; `longtail --debug COMMAND` or `LONGTAIL_DEBUG=1` shows the traceback |",
        "| 2 | a mistake in the arguments or data, a full disk, a file that cannot be written; a sentence says which |",
        "| 130, 143 | stopped by Ctrl-C or SIGTERM: nothing half-written stays, and `--resume` continues |", "",
    ]  # fmt: skip
    for path, command in commands(typer.main.get_command(program), ("longtail",)):
        lines += command_section(path, command)
    return "\n".join(lines)


def commands(command: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """All commands below one, with the words that call them."""
    for name, sub in getattr(command, "commands", {}).items():
        if getattr(sub, "commands", None):
            yield from commands(sub, (*path, name))
        else:
            yield (*path, name), sub


def command_section(path: tuple[str, ...], command) -> list[str]:
    """One command: usage, what it does, arguments and options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([*path, *(metavar(p) for p in arguments)])
    lines = ["", f"## {' '.join(path)}", "", f"    {usage} [OPTIONS]", "", plain(command.help), ""]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{metavar(p)}` | {plain(p.help)} |" for p in arguments] + [""]
    if options:
        lines += ["| option | default | meaning |", "|---|---|---|"]
        for p in options:
            value = "" if p.is_flag else f" {metavar(p)}"
            default = "" if p.is_flag or p.default in (None, ()) or callable(p.default) else f"`{p.default}`"
            name = f"<code>{plain(', '.join(p.opts) + value)}</code>"
            lines.append(f"| {name} | {'required' if p.required else default} | {plain(p.help)} |")
    return lines


def metavar(parameter) -> str:
    """What stands for the value of an argument or option: its choices, where there are some."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    numbers = {int: "N", float: "NUMBER"}
    shown = "|".join(choices) or parameter.metavar or numbers.get(kind, parameter.name.upper())
    repeats = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    return f"{shown}..." if repeats and not shown.endswith("...") else shown


def plain(text: str | None) -> str:
    """Text in a table cell: angle brackets, bars and asterisks stay what they are."""
    text = inspect.cleandoc(text or "").replace("<", "&lt;").replace("|", "&#124;")
    return text.replace("*", "\\*")


def recipes_page() -> str:
    """The recipes with their papers."""
    from longtail.recipes import recipes

    lines = [
        "# Recipes", "",
        "A recipe is a published system with its published constants. `longtail train NAME ...` trains it and "
        "`longtail.recipe(name)` returns it unfitted. [Choose a recipe](../how-to/choose-a-recipe.md) says which one "
        "to start with. `ips+`, `ranknet+` and `taug+` can stand before other recipes too (`ranknet+taug+parabel`): "
        "`taug+` next to the learner whose rows are augmented, and at most one "
        "[tail dial](../explanation/rare-labels.md).",
        "", "| recipe | what it does | paper |", "|---|---|---|",
    ]  # fmt: skip
    lines += [f"| `{known.name}` | {plain(known.summary)} | {plain(known.paper)} |" for known in recipes()]
    return "\n".join(lines)


def results_index() -> str:
    """A list of all pages of results: first what the figures mean, then the figures."""
    pages = sorted(RESULTS.glob("*.md"))
    lines = ["# Benchmark results", "", "Seconds belong to one machine on one day: read ratios.", ""]
    lines += ["## What was found", ""]
    lines += [f"- {link(path)}" for path in pages if path.stem.startswith("findings-")]
    lines += [f"- {link(RESULTS / 'reproduction.md')}: every recipe beside the papers", "", "## Figures", ""]
    lines += ["As the benchmarks wrote them; [how they are measured](../README.md).", ""]
    lines += [f"- {link(path)}" for path in pages if path.stem != "reproduction" and "findings" not in path.stem]
    return "\n".join(lines)


def link(path: Path) -> str:
    """A link to a page of results by its title."""
    return f"[{title_of(path, path.read_text(encoding='utf-8')).removeprefix('Findings: ').capitalize()}]({path.name})"


def title_of(path: Path, text: str) -> str:
    """The first heading, or, where a benchmark wrote none, the name of the file."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    return heading[1] if heading else path.stem.replace("_", " ").capitalize()
