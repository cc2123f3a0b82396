"""Settings that all tests share."""

from hypothesis import settings

settings.register_profile("longtail", deadline=None, print_blob=True)
settings.load_profile("longtail")
