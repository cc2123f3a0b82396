"""Settings that all tests share."""

import os
import signal

from hypothesis import HealthCheck, settings

# No time limits: a busy machine may take any time for an example.
settings.register_profile("longtail", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
# The same examples in every run, so that a change is judged by what it changes; runs by hand go on exploring.
settings.register_profile("ci", parent=settings.get_profile("longtail"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "longtail")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for jobs that a script starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
