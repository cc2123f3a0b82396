"""`python -m longtail`, the same as `longtail`."""

from longtail.app.cli import main

if __name__ == "__main__":
    main()
