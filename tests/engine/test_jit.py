import os
import subprocess
import sys
import textwrap
from pathlib import Path

import longtail
from longtail.engine.jit import kernel_with


def test_options_reach_numba():
    @kernel_with(fastmath=True)
    def twice(value):
        return 2 * value

    assert twice(3) == 6
    assert twice.targetoptions["fastmath"] is True
    assert twice.targetoptions["nogil"] is True


def test_a_change_in_another_file_is_compiled_anew(tmp_path):
    """numba alone would go on with the old code of a function that a cached one calls from another file."""
    package = tmp_path / "longtail"
    (package / "engine").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "engine" / "__init__.py").write_text("")
    source = Path(sys.modules["longtail.engine.jit"].__file__)
    for name in ("jit.py", "compile_once.py"):
        (package / "engine" / name).write_text(source.with_name(name).read_text())
    outer = """
        from longtail.engine.jit import kernel
        from longtail.inner import inner

        @kernel
        def outer(x):
            return inner(x)
        """
    (package / "outer.py").write_text(textwrap.dedent(outer))
    inner = "from longtail.engine.jit import kernel\n\n@kernel\ndef inner(x):\n    return x + {}\n"
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


def test_of_several_processes_one_compiles(tmp_path):
    """The others wait for it and read its code; numba alone would compile in each."""
    (tmp_path / "slow.py").write_text(
        "from longtail.engine.jit import kernel\n\n@kernel\ndef total(values):\n    return values.std()\n"
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


def test_an_error_while_compiling_lets_the_others_go_on(tmp_path):
    (tmp_path / "wrong.py").write_text(
        "from longtail.engine.jit import kernel\n\n@kernel\ndef wrong(value):\n    return value.nothing\n"
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
