import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longtail.kernels.arrays import with_room


@pytest.mark.parametrize("size", [0, 3, 4])
def test_what_fits_is_given_back_as_it_is(size):
    array = np.arange(4, dtype=np.int32)
    same = with_room(array, size)
    assert len(same) == 4
    same[3] = 7
    assert array[3] == 7


@given(length=st.integers(0, 20), more=st.integers(1, 60))
def test_a_larger_one_has_at_least_twice_the_length_and_what_was_there(length, more):
    array = np.arange(length, dtype=np.float32)
    larger = with_room(array, length + more)
    assert len(larger) == max(length + more, 2 * length)
    assert larger.dtype == np.float32
    np.testing.assert_array_equal(larger[:length], array)
    larger[:] = -1
    np.testing.assert_array_equal(array, np.arange(length))
