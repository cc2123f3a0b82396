"""Style of the HTML pages that longtail writes, and the environment of their templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def page_environment(package: str) -> Environment:
    """Return the environment for the templates of a package, which may include the common ``style.css``.

    Examples
    --------
    >>> "--paper" in page_environment("longtail.report").get_template("style.css").render()
    True
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__name__, ".")]),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
