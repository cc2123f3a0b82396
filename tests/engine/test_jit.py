import os
import subprocess
import sys
import textwrap
from pathlib import Path

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
    (package / "engine" / "jit.py").write_text(source.read_text())
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
