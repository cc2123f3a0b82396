"""One hierarchy in every form: the same pairs, and the same sentences for the same mistakes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from longtail.data import read_hierarchy
from longtail.errors import InputError

EX = "http://example.org/"
SKOS = "http://www.w3.org/2004/02/skos/core#"


def in_every_form(folder: Path, pairs: list[tuple[str, str]]) -> list[Path]:
    """Write the pairs (child, parent) in every form that is read."""
    above: dict[str, list[str]] = defaultdict(list)
    for child, parent in pairs:
        above[child].append(parent)
    closed = {child: {child, *parents} for child, parents in above.items()}
    uri = {name: f"<{EX}{name}>" for pair in pairs for name in pair}
    forms = {
        "a.tsv": "".join(f"{child}\t{parent}\n" for child, parent in pairs),
        "a.csv": "child,parent\n" + "".join(f"{child},{parent}\n" for child, parent in pairs),
        "pairs.json": json.dumps(pairs),
        "parents.json": json.dumps(above),
        "rows.jsonl": "".join(5 * (json.dumps({"labels": [c], "labels_all": sorted(closed[c])}) + "\n") for c in above),
        "a.nt": "".join(f"{uri[child]} <{SKOS}broader> {uri[parent]} .\n" for child, parent in pairs),
        "a.ttl": "".join(f"{uri[parent]} <{SKOS}narrower> {uri[child]} .\n" for child, parent in pairs),
    }
    for name, content in forms.items():
        (folder / name).write_text(content)
    return [folder / name for name in forms]


def test_every_form_gives_the_same_pairs(tmp_path):
    labels = ["rome", "venice", "cats"]
    for path in in_every_form(tmp_path, [("rome", "italy"), ("venice", "italy"), ("rome", "ruins")]):
        found = {(child, str(parent).removeprefix(EX)) for child, parent in read_hierarchy(path).pairs(labels)}
        assert found == {(0, "italy"), (1, "italy"), (0, "ruins")}, path


def test_every_form_has_the_same_sentences_for_the_same_mistake(tmp_path):
    for path in in_every_form(tmp_path, [("rome", "italy"), ("italy", "rome")]):
        with pytest.raises(
            InputError, match=f"^{path}(:[0-9]+)?: contains a cycle, .* under .*: remove one of these pairs"
        ) as told:
            read_hierarchy(path)
        assert told.value.reason.count(" under ") == 2
    for path in in_every_form(tmp_path, [("rome", "italy")]):
        with pytest.raises(
            InputError, match=f"^{path}: none of its 2 concepts.* is one of the 1 labels, such as 'cats'"
        ):
            read_hierarchy(path).pairs(["cats"])
