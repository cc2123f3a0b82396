"""Published constants by data set name."""

from __future__ import annotations

import pytest

from longtail.data import Dataset, registry, save
from longtail.errors import InputError, ParameterError
from longtail.propensity import PRESETS, JainPropensity, preset, published_propensity

AMAZON, WIKIPEDIA, OTHER = (0.6, 2.6), (0.5, 0.4), (0.55, 1.5)


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("EURLex-4K", OTHER),
        ("AmazonCat-13K", OTHER),
        ("Wikipedia-31K", OTHER),
        ("WikiLSHTC-325K", WIKIPEDIA),
        ("Wikipedia-500K", WIKIPEDIA),
        ("Amazon-670K", AMAZON),
    ],
)
def test_table_2_of_the_paper(name, constants):
    model = preset(name)
    assert (model.a, model.b) == constants


def test_amazon_and_wikipedia_in_the_name_do_not_decide():
    assert PRESETS["AmazonCat-13K"] == OTHER
    assert PRESETS["LF-WikiSeeAlsoTitles-320K"] == OTHER
    assert PRESETS["LF-WikiTitles-500K"] == WIKIPEDIA
    assert PRESETS["LF-AmazonTitles-1.3M"] == AMAZON


@pytest.mark.parametrize("name", ["amazon-670k", "AMAZON_670K", "Amazon 670K", "Amazon670K"])
def test_case_and_separators_do_not_matter(name):
    assert repr(preset(name)) == "JainPropensity(a=0.6, b=2.6)"


def test_every_name_is_found_and_gives_its_own_object():
    for name, (a, b) in PRESETS.items():
        assert (preset(name).a, preset(name).b) == (a, b)
        assert preset(name) is not preset(name)


def test_names_differ_by_more_than_spelling():
    assert len({"".join(filter(str.isalnum, name.casefold())) for name in PRESETS}) == len(PRESETS)


def test_an_unknown_name_gets_suggestions():
    with pytest.raises(ParameterError, match=r"did you mean .*Amazon-670K.*got 'Amazon-67K'"):
        preset("Amazon-67K")
    with pytest.raises(ParameterError, match="JainPropensity"):
        preset("zzz")
    with pytest.raises(ParameterError, match="preset"):
        preset(None)


def test_or_the_default():
    mine = JainPropensity(a=0.3)
    assert preset("zzz", default=mine) is mine
    assert preset(None, default=mine) is mine
    assert preset("Bibtex", default=mine) is not mine


def test_presets_cannot_be_changed():
    with pytest.raises(TypeError):
        PRESETS["Bibtex"] = (1.0, 1.0)  # type: ignore[index]


def test_the_registry_has_the_same_constants():
    assert {name: registry.describe(name).propensity for name in registry.names()}.items() <= PRESETS.items()


@pytest.mark.parametrize(
    ("source", "constants"),
    [
        ("LF-Amazon-131K", AMAZON),
        ("amazon 670k:test", AMAZON),
        ("Wikipedia-500K:train", WIKIPEDIA),
        ("debian-tags:test", OTHER),
        ("our-catalogue", OTHER),
        ("/data/Amazon-670K", OTHER),
        ("/Amazon-670K", OTHER),
        ("Amazon-670K.txt", OTHER),
    ],
)
def test_rows_by_source(source, constants):
    model = published_propensity(source)
    assert (model.a, model.b) == constants


def test_a_file_is_not_the_data_set_it_is_named_after(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert repr(published_propensity("Amazon-670K")) == "JainPropensity(a=0.6, b=2.6)"
    (tmp_path / "Amazon-670K").write_text("1 1 1\n0 0:1\n")
    assert repr(published_propensity("Amazon-670K")) == "JainPropensity()"
    save(Dataset([[1]], [[1]]), tmp_path / "Amazon-3M")
    assert repr(published_propensity("Amazon-3M")) == "JainPropensity()"


def test_a_split_that_no_data_set_has():
    with pytest.raises(InputError, match="Amazon-670K has no split 'dev'"):
        published_propensity("Amazon-670K:dev")
