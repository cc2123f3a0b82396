import pytest

from longtail import Interrupted
from longtail.errors import LongtailError


def test_ctrl_c_is_never_taken_for_an_error():
    assert not issubclass(Interrupted, Exception)
    assert not issubclass(Interrupted, LongtailError)

    def careless():
        try:
            raise Interrupted("Stopped while counting.")
        except Exception:
            return "swallowed"

    with pytest.raises(KeyboardInterrupt, match="Stopped while counting"):
        careless()
