"""Run a server: ``python -m longtail.serve MODEL...`` is the same as ``longtail serve MODEL...``."""

from __future__ import annotations

import sys

from longtail.app.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["longtail", "serve"]
    main()
