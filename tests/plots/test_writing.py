"""Plots appear under their names only when they are complete."""

import pytest
from matplotlib.figure import Figure

from longtail.plots.style import save


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf", "a.PNG"])
def test_a_plot_is_written_by_its_suffix(name, tmp_path):
    save(Figure(), tmp_path / name)
    begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert (tmp_path / name).read_bytes().startswith(begins[(tmp_path / name).suffix.lower()])


def test_a_plot_that_fails_leaves_the_earlier_one(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"before")

    def fail(figure, file, **options):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(KeyboardInterrupt):
        save(Figure(), tmp_path / "a.png")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
    assert (tmp_path / "a.png").read_bytes() == b"before"
