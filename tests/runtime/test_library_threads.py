"""One thread for other libraries, while any of several threads needs it."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from longtail.runtime.library_threads import one_blas_thread, one_torch_thread


def blas_threads():
    """Of numpy; other tests may have loaded more libraries meanwhile."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return {
        found["num_threads"]
        for found in threadpool_info()
        if found["user_api"] == "blas" and "numpy" in found["filepath"]
    }


def test_the_limit_holds_until_the_last_of_several_users_leaves():
    before = blas_threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    assert blas_threads() == {1}
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def test_torch_has_one_thread_in_every_thread_and_its_own_number_afterwards():
    torch = pytest.importorskip("torch", reason="limits the threads of torch")
    before, seen = torch.get_num_threads(), []

    def look():
        with one_torch_thread():
            seen.append(torch.get_num_threads())

    with one_torch_thread():
        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen.append(torch.get_num_threads())
    assert seen == [1, 1, 1]
    assert torch.get_num_threads() == before
