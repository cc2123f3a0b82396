import os
import subprocess
import sys
import textwrap
from pathlib import Path

import longtail
from longtail.kernels.jit import kernel_with


def test_options_reach_numba():
    @kernel_with(fastmath=True)
    def twice(value):
        return 2 * value

    assert twice(3) == 6
    assert twice.targetoptions["fastmath"] is True
    assert twice.targetoptions["nogil"] is True


def test_a_change_in_another_file_is_compiled_again(tmp_path):
    """numba alone would keep using the old code of a function that a cached one calls from another file."""
    package = tmp_path / "longtail"
    (package / "kernels").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernels" / "__init__.py").write_text("")
    source = Path(sys.modules["longtail.kernels.jit"].__file__)
    (package / "kernels" / "jit.py").write_text(source.read_text())
    outer = """
        from longtail.kernels.jit import kernel
        from longtail.inner import inner

        @kernel
        def outer(x):
            return inner(x)
        """
    (package / "outer.py").write_text(textwrap.dedent(outer))
    inner = "from longtail.kernels.jit import kernel\n\n@kernel\ndef inner(x):\n    return x + {}\n"
    results = []
    for number, when in ((1, 1_000_000_000), (10, 1_100_000_000)):
        (package / "inner.py").write_text(inner.format(number))
        os.utime(package / "inner.py", (when + 10**9, when + 10**9))
        command = [sys.executable, "-c", "from longtail.outer import outer; print(outer(100))"]
        run = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "."}
        )
        results.append(int(run.stdout))
    assert results == [101, 110]


def test_a_cache_that_names_a_type_which_is_gone_is_ignored(tmp_path):
    """As after an upgrade in place: numba alone would fail with an AttributeError while it reads its index."""
    (tmp_path / "user.py").write_text("from summing import Named, total\nprint(total(Named(1, 2)))\n")
    source = (
        "from typing import NamedTuple\nfrom longtail.kernels.jit import kernel\n\n"
        "class {0}(NamedTuple):\n    a: int\n    b: int\n\n"
        "@kernel\ndef total(pair):\n    return pair.a + pair.b\n\nNamed = {0}\n"
    )
    package = tmp_path / "longtail"
    (package / "kernels").mkdir(parents=True)
    for folder in (package, package / "kernels"):
        (folder / "__init__.py").write_text("")
    jit = Path(sys.modules["longtail.kernels.jit"].__file__).read_text()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    for name in ("Before", "After"):
        (package / "kernels" / "jit.py").write_text(f"{jit}\n# {name}\n")
        (tmp_path / "summing.py").write_text(source.format(name))
        command = [sys.executable, "-B", str(tmp_path / "user.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == ["3"]


def test_of_several_processes_one_compiles(tmp_path):
    """The others wait for it and read its code; numba alone would compile in each."""
    (tmp_path / "slow.py").write_text(
        "from longtail.kernels.jit import kernel\n\n@kernel\ndef total(values):\n    return values.std()\n"
    )
    code = (
        "import numpy as np\nfrom slow import total\ntotal(np.ones(3))\n"
        "print(sum(total.stats.cache_misses.values()), sum(total.stats.cache_hits.values()))"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(longtail.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    found = [tuple(map(int, process.communicate()[0].split())) for process in processes]
    assert sorted(found) == [(0, 1), (0, 1), (1, 0)]


def test_an_error_while_compiling_lets_the_others_continue(tmp_path):
    (tmp_path / "wrong.py").write_text(
        "from longtail.kernels.jit import kernel\n\n@kernel\ndef wrong(value):\n    return value.nothing\n"
    )
    code = (
        "from wrong import wrong\n"
        "for _ in range(2):\n"
        "    try: wrong(1)\n"
        "    except Exception as error: print(type(error).__name__)"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(longtail.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["TypingError", "TypingError"]
