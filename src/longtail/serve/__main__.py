"""`python -m longtail.serve MODEL...`, the same as `longtail serve MODEL...`."""

import sys

from longtail.cli import main

if __name__ == "__main__":
    sys.argv[:1] = ["longtail", "serve"]
    main()
