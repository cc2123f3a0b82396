"""Hierarchies: every format gives the same pairs, mistakes name the line, labels are found by name."""

from __future__ import annotations

import gzip
import json
import lzma
import os
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longtail.data import Hierarchy, read_hierarchy
from longtail.data.cycles import cycle_reason, find_cycle
from longtail.data.readers.skos import read_statements
from longtail.errors import InputError

TATE = Path(os.environ.get("LONGTAIL_DATA", "."), "tate-subjects/hierarchy/all.jsonl.gz")
EX = "http://example.org/"
SKOS = "http://www.w3.org/2004/02/skos/core#"

TURTLE = f"""\
# towns and where they are
@prefix skos: <{SKOS}> .
@prefix ex: <{EX}> .
@base <{EX}> .

ex:all a skos:ConceptScheme ; skos:hasTopConcept ex:europe .
ex:europe a skos:Concept ; skos:topConceptOf ex:all ;
    skos:prefLabel "Europa"@it , "Europe"@en .
ex:italy skos:broader ex:europe ; skos:prefLabel "Italy"@en-GB; skos:narrower ex:rome, <venice>.
ex:rome skos:broader ex:italy ; skos:notation "R1" ; skos:prefLabel "Rome" .
<venice> skos:prefLabel "Venezia"@it , "Venedig"@de ;
.
"""
NTRIPLES = f"""\
<{EX}all> <{SKOS}hasTopConcept> <{EX}europe> .
<{EX}all> <http://purl.org/dc/terms/title> "not \\ valid, not of interest .
<{EX}europe> <{SKOS}topConceptOf> <{EX}all> .
<{EX}europe> <{SKOS}prefLabel> "Europa"@it .
<{EX}europe> <{SKOS}prefLabel> "Eur\\u006fpe"@en . # a comment
<{EX}italy> <{SKOS}broader> <{EX}europe> .

<{EX}italy> <{SKOS}prefLabel> "Italy"@en-GB .
<{EX}rome> <{SKOS}broader> <{EX}italy> .
<{EX}italy> <{SKOS}narrower> <{EX}venice> .
<{EX}rome> <{SKOS}notation> "R1"^^<{EX}code> .
<{EX}rome> <{SKOS}prefLabel> "Rome" .
<{EX}venice> <{SKOS}prefLabel> "Venezia"@it .
<{EX}venice> <{SKOS}altLabel> "Venice"@en .
"""
XML = f"""\
<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [<!ENTITY ex "{EX}">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="{SKOS}" xml:base="{EX}towns">
  <skos:ConceptScheme rdf:about="all">
    <skos:hasTopConcept>
      <skos:Concept rdf:about="&ex;europe">
        <skos:prefLabel xml:lang="it">Europa</skos:prefLabel>
        <skos:prefLabel xml:lang="en">Eur<!-- -->ope</skos:prefLabel>
        <skos:narrower rdf:resource="italy"/>
      </skos:Concept>
    </skos:hasTopConcept>
  </skos:ConceptScheme>
  <rdf:Description rdf:about="italy" xml:lang="en-GB">
    <skos:prefLabel>Italy</skos:prefLabel>
    <skos:narrower><rdf:Description rdf:about="rome" skos:prefLabel="Rome"/></skos:narrower>
    <skos:editorialNote rdf:parseType="Literal"><b><skos:broader rdf:resource="rome"/></b></skos:editorialNote>
    <skos:narrower rdf:resource="venice"/>
  </rdf:Description>
  <skos:Concept rdf:about="rome"><skos:notation>R1</skos:notation></skos:Concept>
  <skos:Concept rdf:about="venice"><skos:prefLabel xml:lang="it">Venezia</skos:prefLabel></skos:Concept>
</rdf:RDF>
"""


@pytest.fixture
def write(tmp_path):
    def write_file(content, name):
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        packed = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)(data)
        path.write_bytes(packed)
        return path

    return write_file


def named_pairs(hierarchy):
    return [(hierarchy.names[child], hierarchy.names[parent]) for child, parent in hierarchy.parents]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize(("content", "name"), [(TURTLE, "a.ttl"), (NTRIPLES, "a.nt"), (XML, "a.rdf")])
def test_skos(write, content, name, suffix):
    found = read_hierarchy(write(content, name + suffix))
    short = {(child.removeprefix(EX), parent.removeprefix(EX)) for child, parent in named_pairs(found)}
    assert short == {("europe", "all"), ("italy", "europe"), ("rome", "italy"), ("venice", "italy")}
    titles = {name.removeprefix(EX): title for name, title in zip(found.names, found.titles, strict=True)}
    assert titles == {"all": None, "europe": "Europe", "italy": "Italy", "rome": "Rome", "venice": "Venezia"}
    assert found.notations[found.names.index(EX + "rome")] == "R1"
    assert found.parents.dtype == np.int32


@pytest.mark.parametrize("content", [TURTLE, NTRIPLES, XML])
def test_format_is_detected_from_the_content(write, content):
    assert len(read_hierarchy(write(content, "thesaurus.data")).parents) == 4


def test_language(write):
    titles = read_hierarchy(write(TURTLE, "a.ttl"), language="IT").titles
    assert "Europa" in titles
    assert "Venezia" in titles
    assert "Italy" in titles
    assert "Venedig" in read_hierarchy(write(TURTLE, "a.ttl"), language="de").titles


def test_a_scheme_stands_above_what_has_nothing_broader(write):
    text = f"<a> <{SKOS}topConceptOf> <s> .\n<a> <{SKOS}broader> <b> .\n<s> <{SKOS}hasTopConcept> <b> .\n"
    assert named_pairs(read_hierarchy(write(text, "a.nt"))) == [("a", "b"), ("b", "s")]


def statements(write, text, name, form):
    return [tuple(one)[:4] for one in read_statements(write(text, name), form)]


def test_turtle_syntax(write):
    text = (
        f"PREFIX : <{SKOS}>\nBASE <{EX}x/>\nprefix e: <#>\n"
        "e:a.b-1 :broader e:c\\.d, _:b.1 ; ; :prefLabel '''it's \"\"\n\\u00e9''' , 'x\\ty' ."
        "e:a:b :notation 12.5, true.\n"
        '[] :prefLabel """say "hi" """@en-GB . [ :notation 3 ] . <> :prefLabel "" .\n'
        "e:l :member ( e:a [ :broader <../y> ] 'z'@de ) ; a :Concept ; :broader <\\u0061> . # end"
    )
    assert statements(write, text, "a.ttl", "turtle") == [
        (f"{EX}x/#a.b-1", "broader", f"{EX}x/#c.d", ""),
        (f"{EX}x/#a.b-1", "broader", "_:b.1", ""),
        (f"{EX}x/#a.b-1", "prefLabel", 'it\'s ""\n\u00e9', ""),
        (f"{EX}x/#a.b-1", "prefLabel", "x\ty", ""),
        (f"{EX}x/#a:b", "notation", "12.5", ""),
        (f"{EX}x/#a:b", "notation", "true", ""),
        ("_:[1]", "prefLabel", 'say "hi" ', "en-gb"),
        ("_:[2]", "notation", "3", ""),
        (f"{EX}x/", "prefLabel", "", ""),
        ("_:[4]", "broader", f"{EX}y", ""),
        (f"{EX}x/#l", "broader", f"{EX}x/a", ""),
    ]


def test_rdf_xml_syntax(write):
    text = (
        '<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
        f'xmlns="{SKOS}" xmlns:s="{SKOS}" xml:base="{EX}x#y">'
        '<Concept r:ID="one"><broader r:nodeID="n"/><broader r:parseType="Resource"><notation> 7 </notation></broader>'
        '</Concept><Concept r:nodeID="n" s:notation="N"><narrower><Concept/></narrower></Concept></r:RDF>'
    )
    assert statements(write, text, "a.rdf", "xml") == [
        (f"{EX}x#one", "broader", "_:n", ""),
        (f"{EX}x#one", "broader", "_:[1]", ""),
        ("_:[1]", "notation", " 7 ", ""),
        ("_:n", "notation", "N", ""),
        ("_:n", "narrower", "_:[2]", ""),
    ]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NAMES = st.text("abcXYZ059é", min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.sampled_from(["broader", "prefLabel"]), NAMES, TEXT), min_size=1, max_size=8))
def test_written_statements_come_back(tmp_path_factory, rows):
    """Strings are escaped as JSON does it, which both forms of triples understand."""
    expected, triples, turtle = [], [], [f"@prefix s: <{SKOS}>.\n@prefix e: <{EX}> ."]
    for subject, about, linked, text in rows:
        quoted = json.dumps(text, ensure_ascii=False)
        value = f"<{EX}{linked}>" if about == "broader" else f"{quoted}@it"
        triples.append(f"<{EX}{subject}> <{SKOS}{about}> {value} .\n")
        turtle.append(f"e:{subject}\ts:{about} {f'e:{linked}' if about == 'broader' else value}.")
        expected.append(
            (EX + subject, about, EX + linked if about == "broader" else text, "" if about == "broader" else "it")
        )
    folder = tmp_path_factory.mktemp("rdf")
    for name, form, content in (("a.nt", "ntriples", "".join(triples)), ("a.ttl", "turtle", " ".join(turtle))):
        (folder / name).write_bytes(content.encode())
        assert [tuple(one)[:4] for one in read_statements(folder / name, form)] == expected


PAIRS = [("Rome", "Italy"), ("Venice", "Italy"), ("Italy", "Europe"), ("Venice", "Sea, the")]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("Rome\tItaly\nVenice\tItaly\r\nItaly\tEurope\nVenice\tSea, the\n\nEurope\t\n", "a.tsv"),
        ('\ufeffchild,parent\nRome, Italy\nVenice,Italy\nItaly,Europe\nVenice,"Sea, the"', "a.csv"),
        ('"Rome";"Italy"\nVenice;Italy\nItaly;Europe\nVenice;Sea, the\nRome;Italy', "a.txt"),
        ("Sea, the;\nRome;Italy\nVenice; Italy\n\nItaly;Europe\nVenice;Sea, the\n", "a.csv"),
        (json.dumps(PAIRS), "a.json"),
        ('{"Rome": "Italy", "Venice": ["Italy", "Sea, the"], "Italy": "Europe", "Europe": null}', "a.json"),
        (
            '[{"name": "Europe", "children": [{"name": "Italy", "children": ["Rome", {"name": "Venice"}]}]},'
            ' {"id": "Sea, the", "children": [{"id": "Venice", "children": []}]}]',
            "tree",
        ),
    ],
    ids=["tabs", "commas", "semicolons", "semicolons before commas", "list", "map", "nested"],
)
def test_pairs_and_json(write, content, name):
    found = read_hierarchy(write(content, name))
    assert sorted(named_pairs(found)) == sorted(PAIRS)
    assert set(found.titles) == {None}


def test_semicolons_in_quotes_do_not_separate(write):
    found = read_hierarchy(write('"Rome; old","Italy"\n"Venice; old","Italy"\n', "a.csv"))
    assert named_pairs(found) == [("Rome; old", "Italy"), ("Venice; old", "Italy")]


def test_a_concept_may_be_called_children(write):
    found = read_hierarchy(write('{"children": "people", "adults": ["people", "voters"]}', "a.json"))
    assert named_pairs(found) == [("children", "people"), ("adults", "people"), ("adults", "voters")]


def test_ids_and_names_of_json(write):
    text = '{"id": 7, "name": "Italy", "children": [{"id": 8, "name": "Rome", "children": null}]}'
    found = read_hierarchy(write(text, "a.json"))
    assert found.names == ("7", "8")
    assert found.titles == ("Italy", "Rome")
    assert found.pairs(["Rome", "Italy"]) == [(0, 1)]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "a.tsv", "is empty"),
        ("\n \n", "a.json", "is empty"),
        ("a\tb\nb\tc\nc\ta\n", "a.tsv", "a.tsv:3: contains a cycle, 'a' under 'b' under 'c' under 'a'"),
        ("a\tb\nx\tx\n", "a.tsv", "a.tsv:2: contains a cycle, 'x' under 'x'"),
        ("a\tb\tc\n", "a.tsv", "a.tsv:1: must be a child and its parent"),
        ("a\tb\n\tb\n", "a.tsv", "a.tsv:2: must be a child"),
        ("one column\n", "a.txt", "a.txt:1: must be"),
        ("Sea, the, old;Water;x\n", "a.csv", "a.csv:1: must be a child and its parent with a tab, comma or semicolon"),
        ("a, b;c\nd\n", "a.csv", "a.csv:2: must be a child"),
        ("a,b,c\n", "a.csv", "a.csv:1: must be"),
        ('a,b\n"a"b,c\n', "a.csv", "a.csv:2: can't be read"),
        ("a\t\n", "a.tsv", "no concept with a parent"),
        (b"a\tb\n\xff\tc\n", "a.tsv", "a.tsv:2: is not UTF-8"),
        ('{"a": "b",\n}', "a.json", "a.json:2: is not JSON"),
        ('{"labels": [1]}\n{"labels": [2]}', "a.jsonl", "a.jsonl:1: must be a JSON object with lists 'labels'"),
        ('{"labels": ["cat"]}\n', "a.jsonl", "a.jsonl:1: must be a JSON object with lists 'labels' and 'labels_all'"),
        ('{"text": "a cat", "labels": ["cat"]}', "rows", "rows:1: must be a JSON object with lists 'labels'"),
        ('{"a": 1}\n{"a": 2}', "a.jsonl", "a.jsonl:2: is not JSON: Extra data"),
        ('{"labels": 3, "labels_all": [3]}', "a.jsonl", "a.jsonl:1: must be a JSON object with lists 'labels'"),
        ('{"labels": [], "labels_all": []}\n{\n', "a.jsonl", "a.jsonl:2: must be a JSON object with lists"),
        ('{"a": "b", "a": "c"}', "a.json", "'a' twice"),
        ('{"a": {"b": "c"}}', "a.json", "is JSON, but not a hierarchy"),
        ('{"a": ["a"]}', "a.json", "contains a cycle, 'a' under 'a'"),
        ('{"a": "b", "b": "a"}', "a.json", "a.json: contains a cycle"),
        ("[[1, 2, 3]]", "a.json", "got [1, 2, 3]"),
        ('[["a", 1.5]]', "a.json", "got 1.5"),
        ('[["a", true]]', "a.json", "got true"),
        ('{"name": "a", "children": [{"title": "b"}]}', "a.json", 'got {"title": "b"}'),
        ('{"name": "a", "children": [{"name": "b", "children": 3}]}', "a.json", 'has 3 for "children"'),
        ('{"name": "Facets", "children": "x"}', "a.json", 'has "x" for "children", which must be a list'),
        ('{"id": 3, "children": "x", "colour": "red"}', "a.json", 'has "x" for "children"'),
        ('{"name": "a", "children": {"name": "b"}}', "a.json", 'has {"name": "b"} for "children"'),
        ('{"name": "a", "children": [{"name": "b", "children": ""}]}', "a.json", 'has "" for "children"'),
        ('{"children": ["a", "b"]}', "a.json", 'got {"children": ["a", "b"]}, without "name" or "id"'),
        ('{"title": "a", "children": ["b"]}', "a.json", 'without "name" or "id"'),
        ('{"name": "Rome", "parent": "Italy"}', "a.json", "no concept with a parent"),
        ('{"name": "a", "children": null}', "a.json", "no concept with a parent"),
        ("7", "a.json", "but not a hierarchy"),
        ("[" * 100_000, "a.json", "nested too deeply"),
        ("[]", "a.json", "no concept with a parent"),
        ("<html><p>hello</p></html>", "a.xml", "no SKOS concepts"),
        ("<a>\n<b></a>", "a.rdf", "a.rdf:2: is not XML: mismatched tag"),
        ('<?xml version="1.0" encoding="nonsense"?><a/>', "a.rdf", "can't be read"),
        (XML.replace('"rome"/></b>', '"rome"></b>'), "a.rdf", "a.rdf:16: is not XML"),
        (
            XML.replace('resource="venice"', 'resource="italy"'),
            "a.rdf",
            "a.rdf:17: contains a cycle, 'http://example.org/italy' under",
        ),
        (f"<a> <{SKOS}broader> <b> .\n<a> <{SKOS}broader> .", "a.nt", "a.nt:2: is not a statement"),
        (f'<a> <{SKOS}prefLabel> "\\UFFFFFFFF" .', "a.nt", "a.nt:1: has an invalid escape sequence"),
        (b"<a> <" + SKOS.encode() + b'prefLabel> "\xff" .', "a.nt", "a.nt:1: is not UTF-8"),
        ("<a> <b> <c> .\n", "a.nt", "no SKOS concepts"),
        (
            TURTLE.replace("ex:rome skos:broader", "ey:rome skos:broader"),
            "a.ttl",
            "a.ttl:10: has 'ey:rome' where a name",
        ),
        (TURTLE.replace("<venice>.", "<venice>"), "a.ttl", "a.ttl:10: has 'ex:rome' where a dot"),
        (TURTLE + "ex:a skos:broader", "a.ttl", "a.ttl:13: has its end where a value"),
        (TURTLE + 'ex:a skos:prefLabel "open .\n', "a.ttl", "a.ttl:13: has '\"open'"),
        (TURTLE + "ex:europe skos:broader\nex:rome .\n", "a.ttl", "a.ttl:14: contains a cycle"),
        (TURTLE.replace("@base <", "@base ex:a <"), "a.ttl", "a.ttl:4: has 'ex:a' where an address"),
        (TURTLE.replace("@prefix ex:", "@prefix ex:a"), "a.ttl", "a.ttl:3: has 'ex:a' where a prefix"),
        ("[" * 100_000, "a.ttl", "nested too deeply"),
        ("<a> <b> [ <c> <d> .", "a.ttl", "has '.' where ] is expected"),
        (b"# \xff", "a.ttl", "is empty"),
        (b"<a> <b> <c> .\n# \xff", "a.ttl", "a.ttl:2: is not UTF-8"),
    ],
)
def test_mistakes(write, content, name, message):
    with pytest.raises(InputError) as caught:
        read_hierarchy(write(content, name))
    assert message in str(caught.value)
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 400


def test_no_file(tmp_path):
    for path in (tmp_path / "nothing.ttl", tmp_path):
        with pytest.raises(InputError, match="can't be read"):
            read_hierarchy(path)


def test_rows_with_all_concepts_above_theirs(write):
    """cat stands under animal and being in each of its rows; dog, in fewer than five rows, is left out."""
    rows = [{"labels": ["cat"], "labels_all": ["cat", "animal", "being", other]} for other in "uvwxy"]
    rows += [{"labels": ["dog", 7], "labels_all": ["dog", 7, "animal"]}] * 4
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = read_hierarchy(write(text, "all.jsonl.gz"))
    assert found.pairs(["animal", "being", "cat", "dog"]) == [(2, 0), (2, 1)]


def hierarchy(names, titles=None, notations=()):
    return Hierarchy(tuple(names), tuple(titles or [None] * len(names)), np.array([[1, 0]], np.int32), tuple(notations))


class TestMatch:
    def test_order(self):
        """Ids come before titles, titles before last parts, these before notations."""
        found = hierarchy(
            [EX + "b", "a", EX + "c#d/", "urn:x:E", "z"], ["a", "b", None, None, None], [None] * 4 + ["F"]
        )
        assert found.match(["a", "b", "d", "E", "F"]).tolist() == [1, 0, 2, 3, 4]
        assert found.match(["b", "c#d"]).tolist() == [-1, 0, -1, -1, -1]
        assert found.match(["q", EX + "b", "b"]).tolist() == [1, 2, -1, -1, -1]

    def test_exact_comes_before_any_case(self):
        found = hierarchy([EX + "1", EX + "2", "POLISH"], ["polish", "Polish", None])
        assert found.match(["Polish"]).tolist() == [-1, 0, -1]
        assert found.match(["pOLISH"]).tolist() == [-1, -1, 0]
        assert found.match([" Polish ", "polish"]).tolist() == [1, 0, -1]
        assert found.match(["polisH", "pOlish", "1"]).tolist() == [2, -1, -1]

    def test_a_label_is_all_concepts_that_it_fits_equally_well(self):
        assert hierarchy(["1", "2"], ["Paris", "Paris"]).match(["x", "Paris"]).tolist() == [1, 1]
        assert hierarchy(["1", "Paris"], ["Paris", None]).match(["x", "Paris"]).tolist() == [-1, 1]
        assert hierarchy(["1", "2"], ["paris", "Paris"]).match(["Paris"]).tolist() == [-1, 0]

    def test_unicode_forms(self):
        composed, apart = "S\u00e3o Paulo", "Sa\u0303o Paulo"
        assert hierarchy(["1", "2"], [composed, None]).match(["2", apart]).tolist() == [1, 0]
        assert hierarchy(["1", "2"], [apart, None]).match([composed.upper()]).tolist() == [0, -1]
        assert hierarchy([apart, "2"]).match([composed, apart]).tolist() == [1, -1]

    def test_percent_signs_of_uris(self):
        assert hierarchy([EX + "S%C3%A3o_Paulo", EX + "b"]).match(["S\u00e3o_Paulo"]).tolist() == [0, -1]
        assert hierarchy([EX + "a%2Fb", EX + "b"]).match(["a/b", "b"]).tolist() == [0, 1]
        assert hierarchy([EX + "a%20b", EX + "b"]).match(["a%20b", "a b"]).tolist() == [0, -1]
        assert hierarchy(["50%25", "b"]).match(["50%", "b"]).tolist() == [-1, 1]

    def test_a_label_stands_under_the_parents_of_all_its_concepts(self, write):
        text = (
            f"@prefix s: <{SKOS}> . @prefix e: <{EX}> .\n"
            'e:1 s:prefLabel "Mercury" ; s:broader e:metals . e:2 s:prefLabel "Mercury" ; s:broader e:planets .\n'
            "e:gold s:broader e:metals . e:mars s:broader e:planets .\n"
        )
        found = read_hierarchy(write(text, "a.ttl"))
        assert sorted(map(str, found.pairs(["Mercury", "gold", "mars"]))) == sorted(
            map(str, [(0, EX + "metals"), (0, EX + "planets"), (1, EX + "metals"), (2, EX + "planets")])
        )

    def test_a_concept_with_others_under_it_keeps_them_beside_its_namesake(self):
        """The city stands under the country of its name, and a street of it: neither goes round, nor goes astray."""
        names, titles = ("world", "1", "2", "street", "songs", "3"), (None, "Lux", "Lux", None, None, "Lux")
        parents = np.array([(1, 0), (2, 1), (3, 2), (5, 4)], np.int32)
        found = Hierarchy(names, titles, parents)
        placed = [("1", "world"), ("2", "1"), (1, "2"), (0, "songs"), (0, "1"), (0, "2")]
        assert found.pairs(["Lux", "street"]) == placed

    def test_pairs(self):
        assert hierarchy(["a", "b"]).pairs(["c", "B"]) == [(1, "a")]
        assert hierarchy(["0", "1"]).pairs(["0"]) == [("1", 0)]

    def test_ids_where_no_name_matches(self):
        """Only if all integers can be label ids."""
        assert hierarchy(["1", "0"]).pairs(["a", "b"]) == [(0, 1)]
        with pytest.raises(InputError, match="none of its 2 concepts"):
            hierarchy(["1", "2"]).pairs(["a", "b"])

    def test_nothing_found(self):
        with pytest.raises(
            InputError,
            match=r"none of its 2 concepts, such as 'a' \('A!'\) is one of the 1 labels, such as 'c'.*or its notation",
        ):
            hierarchy(["a", "b"], ["A!", None]).pairs(["c"])

    def test_labels_of_one_name(self):
        with pytest.raises(InputError, match="'a' is the name of several labels"):
            hierarchy(["a", "b"]).pairs(["a", "a"])

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.text("aAbB/", max_size=3), unique=True, min_size=1), st.data())
    def test_a_label_is_a_concept_that_is_called_so(self, labels, data):
        names = data.draw(st.lists(st.text("aAbB/", min_size=1, max_size=3), unique=True, min_size=2))
        titles = data.draw(st.lists(st.none() | st.text("aAbB", max_size=2), min_size=len(names), max_size=len(names)))
        try:
            found = hierarchy(names, titles).match(labels)
        except InputError:
            assert not {*names, *titles} & {*labels} - {""}
            return
        for name, title, label in zip(names, titles, found, strict=True):
            assert label < 0 or labels[label].casefold() in (name.casefold(), (title or "").casefold())
        for place, label in enumerate(labels):
            if label in names:
                assert np.flatnonzero(found == place).tolist() == [names.index(label)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=14))
def test_circles(pairs):
    circle = find_cycle(np.array(pairs), 8)
    reach = np.zeros((8, 8), int)
    reach[tuple(np.array(pairs).T)] = 1
    power, walks = reach.copy(), reach.copy()
    for _ in range(8):
        power = np.minimum(power @ reach, 1)
        walks |= power
    assert bool(circle) == walks.diagonal().any()
    if circle:
        assert circle[0] == circle[-1]
        assert len(circle) > 1
        assert {*pairwise(circle)} <= {*pairs}


def test_long_circles_are_cut_short():
    assert cycle_reason(range(100)).endswith("5 under 6 under ...: remove one of these pairs.")


@pytest.mark.skipif(not TATE.exists(), reason="LONGTAIL_DATA names no folder with tate-subjects")
def test_subjects_of_the_tate(tmp_path):
    """Each leaf goes under the smallest term that all its works have, and that under the next."""
    above, below = {}, defaultdict(set)
    with gzip.open(TATE, "rt") as file:
        for work in map(json.loads, file):
            inner = {*work["labels_all"]} - {*work["labels"]}
            for term in work["labels"]:
                above[term] = above.get(term, inner) & inner
    for term, inner in above.items():
        for one in inner:
            below[one].add(term)
    lines = []
    for term, inner in above.items():
        chain = [term, *sorted(inner, key=lambda one: (len(below[one]), one))][:2]
        lines += ["\t".join(map(str, chain)) + "\n"] if len(chain) == 2 else []
    path = tmp_path / "tate.tsv"
    path.write_text("".join(lines))
    names = [str(term) for term in sorted(above)]
    pairs = read_hierarchy(path).pairs(names)
    children = [child for child, _ in pairs]
    assert len(pairs) == len(set(children)) > 10_000
    assert all(isinstance(child, int) for child in children)
    assert np.mean([isinstance(parent, str) for _, parent in pairs]) > 0.9


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.json", f"[[{'1' * 5000}, 1]]", "a.json: has an integer with too many digits"),
        ("a.tsv", f"{'1' * 5000}\t7\n", "a.tsv: none of its 2 concepts"),
        ("a.jsonl", '{"labels": "abc", "labels_all": ["abc"]}\n', "a.jsonl:1: must be a JSON object with lists"),
        ("a.jsonl", '{"labels": [null], "labels_all": [null]}\n', "a.jsonl:1: must be a JSON object with lists"),
    ],
    ids=["digits in JSON", "digits in pairs", "a text for a list", "null for a name"],
)
def test_values_that_are_no_names(tmp_path, name, content, told):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=told):
        read_hierarchy(tmp_path / name).pairs(["0", "1"])
