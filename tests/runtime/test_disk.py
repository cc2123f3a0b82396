import pytest

from longtail.runtime import disk as directory
from longtail.runtime.disk import replacing


def names(path):
    return sorted(entry.name for entry in path.iterdir())


@pytest.fixture(params=["exchange", "two renames"])
def _way(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(directory, "_exchange", lambda one, other: False)


@pytest.mark.usefixtures("_way")
class TestReplacing:
    def write(self, target, name):
        with replacing(target) as fresh:
            (fresh / name).write_text(name)

    def test_new_directory(self, tmp_path):
        self.write(tmp_path / "m", "a")
        assert names(tmp_path) == ["m"]
        assert names(tmp_path / "m") == ["a"]

    def test_takes_the_place_of_an_older_one(self, tmp_path):
        self.write(tmp_path / "m", "a")
        self.write(tmp_path / "m", "b")
        assert names(tmp_path) == ["m"]
        assert names(tmp_path / "m") == ["b"]

    def test_takes_the_place_of_an_empty_one(self, tmp_path):
        (tmp_path / "m").mkdir()
        self.write(tmp_path / "m", "a")
        assert names(tmp_path / "m") == ["a"]

    def test_a_symbolic_link_is_kept(self, tmp_path):
        self.write(tmp_path / "m", "a")
        (tmp_path / "link").symlink_to(tmp_path / "m")
        self.write(tmp_path / "link", "b")
        assert (tmp_path / "link").is_symlink()
        assert names(tmp_path / "m") == ["b"]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_an_error_leaves_everything_as_it_was(self, tmp_path, error):
        self.write(tmp_path / "m", "a")
        for target in (tmp_path / "m", tmp_path / "other"):
            with pytest.raises(error), replacing(target) as fresh:  # noqa: PT012
                (fresh / "half").write_text("")
                raise error
        assert names(tmp_path) == ["m"]
        assert names(tmp_path / "m") == ["a"]


def test_the_old_one_comes_back_when_the_move_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "_exchange", lambda one, other: False)
    with replacing(tmp_path / "m") as fresh:
        (fresh / "a").write_text("")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "m") as fresh:
        fresh.rename(tmp_path / "elsewhere")
    assert names(tmp_path / "m") == ["a"]
