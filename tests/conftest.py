"""Settings that all tests share."""

import os

from hypothesis import settings

settings.register_profile("longtail", deadline=None, print_blob=True)
# The same examples in every run, so that a change is judged by what it changes; runs by hand go on exploring.
settings.register_profile("ci", parent=settings.get_profile("longtail"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "longtail")
