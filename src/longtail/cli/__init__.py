"""The command line: `longtail train`, `predict`, `evaluate`, `report` and the other commands.

The modules here stay light: a command imports what it works with when it is called, so that help comes at once.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program `longtail`."""
    try:
        from longtail.cli.console import tidy_when_terminated
        from longtail.cli.program import program
    except KeyboardInterrupt:
        sys.exit(130)
    tidy_when_terminated()
    program(prog_name="longtail")
