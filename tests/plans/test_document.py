"""YAML files as values with the line of every key."""

from __future__ import annotations

import re
import sys

import pytest

import msgrad as mg
from msgrad.plans import TEXT, Checker, Document, number, parse_document, whole

LINES = [
    pytest.param("a: 1\nb:\n  c: 2", {("a",): 1, ("b",): 2, ("b", "c"): 3}, id="mappings"),
    pytest.param("a:\n- 1\n- x: 2", {("a", 0): 2, ("a", 1): 3, ("a", 1, "x"): 3}, id="lists"),
    pytest.param("a: [1,\n  2]", {("a", 0): 1, ("a", 1): 2}, id="a list over two lines"),
    pytest.param("# one\n\n---\na: 1", {("a",): 4}, id="comments and a start"),
    pytest.param("a: &x\n  b: 1\nc: *x", {("a", "b"): 2, ("c", "b"): 2, ("c",): 3}, id="anchor"),
]
VALUES = [
    pytest.param("", {}, id="an empty file"),
    pytest.param("a: 010\nb: 1:30\nc: 1_0\nd: +7\ne: 0x1f", "010 1:30 1_0 7 0x1f", id="numbers"),
    pytest.param("a: yes\nb: 1.5\nc: null\nd: 1e-3\ne: '1'", "True 1.5 None 1e-3 1", id="words"),
    pytest.param("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2", {"b": 1, "d": 2}, id="a merge"),
    pytest.param("a: &x {b: 1}\nd: &y {<<: *x, b: 3}\nc: *y", {"b": 3}, id="a merge, again"),
]
BROKEN = [
    pytest.param("a: [", "f.yaml:1: the file is no YAML: expected the node content", id="open"),
    pytest.param("a: 1\n b: 2", "f.yaml:2: the file is no YAML: mapping values", id="indentation"),
    pytest.param("[1]: 2", "f.yaml:1: the file is no YAML: a key is a list", id="a list as key"),
    pytest.param("a: \x00", "f.yaml:1: the file is no YAML: special characters", id="a zero byte"),
]
UNQUOTED = [
    pytest.param("a:\n- *.bias", 2, "*", id="a star"),
    pytest.param("a: *bias", 1, "*", id="a star before a word"),
    pytest.param("a: !head", 1, "!", id="an exception"),
    pytest.param("a: [conv1, !head]", 1, "!", id="an exception in a list"),
    pytest.param("a: 1\nb: [layers.{0..5}]", 2, "{", id="a range"),
    pytest.param("a: {q,v}_proj", 1, "{", id="alternatives"),
]


@pytest.mark.parametrize(("text", "lines"), LINES)
def test_every_key_and_item_has_its_line(text, lines):
    document = parse_document(text, "f.yaml")
    assert {path: document.lines[path] for path in lines} == lines


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_only_what_looks_like_a_number_is_one(text, expected):
    values = parse_document(text, "f.yaml").values
    if isinstance(expected, dict):
        assert values.get("c", values) == expected
    else:
        assert " ".join(map(str, values.values())) == expected


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_what_is_no_yaml_is_refused_at_its_line(text, message):
    with pytest.raises(mg.PlanError, match=rf"^{re.escape(message)}.*; write key: value lines$"):
        parse_document(text, "f.yaml")


@pytest.mark.parametrize(("text", "line", "sign"), UNQUOTED)
def test_a_pattern_that_yaml_reads_otherwise_is_to_be_put_in_quotes(text, line, sign):
    with pytest.raises(mg.PlanError, match="the file is no YAML: ") as caught:
        parse_document(text, "f.yaml")
    assert str(caught.value).startswith(f"f.yaml:{line}: the file is no YAML: ")
    assert str(caught.value).endswith(f"; put a name with {sign} in quotes")


def test_keys_that_stand_twice_are_told_once_each_wherever_they_are_used():
    text = "a: &x {b: 1, b: 2}\nc: *x\na: 3\nd:\n  <<: *x\n  b: 4\n"
    document = parse_document(text, "f.yaml")
    assert [str(problem) for problem in document.problems] == [
        "f.yaml:3: key 'a' stands twice, first in line 1; keep one of them",
        "f.yaml:1: key 'b' stands twice, first in line 1; keep one of them",
    ]


def test_an_anchor_inside_itself_is_refused():
    with pytest.raises(mg.PlanError, match=r"^f\.yaml:2: the file is no YAML: an anchor stands in"):
        parse_document("b: 1\na: &x [*x]", "f.yaml")


def test_a_key_that_is_not_in_the_file_has_the_line_of_what_it_would_be_in():
    document = parse_document("a: 1\nb:\n  c: 2", "dir/f.yaml")
    assert document.line(("b", "d", 0)) == 2
    assert document.line(("x",)) is None
    assert str(document.problem(("b", "d"), "is missing")) == "dir/f.yaml:2: is missing"
    # the place is kept in checkpoints, which may be read in another folder
    assert document.location(("b", "c")) == "f.yaml:3"


def test_a_plan_from_a_dict_needs_no_yaml_and_one_from_a_file_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert mg.Plan.from_dict({"plan": [{"freeze": "a"}]}).rules[0].kind == "freeze"
    with pytest.raises(mg.MissingPackageError, match=r"needs yaml.*pip install 'msgrad\[tools\]'"):
        parse_document("a: 1")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "f.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(mg.PlanError, match=r"f\.yaml: the file cannot be read: 'utf-8' codec"):
        mg.Plan.from_file(tmp_path / "f.yaml")


def test_a_checker_converts_what_is_safe_and_notes_the_rest_in_the_order_of_lines():
    document = parse_document("rate: 1e-3\nname: 10\ncount: true\nrat: 1\n", "f.yaml")
    checker = Checker(document)
    kinds = {"rate": number(), "name": TEXT, "count": whole(1)}
    found = checker.mapping((), document.values, kinds, "the config")
    assert found == {"rate": 0.001, "name": "10"}
    with pytest.raises(mg.PlanError, match="is no whole number") as caught:
        checker.raise_all()
    assert str(caught.value).splitlines() == [
        "f.yaml:3: count True of the config is no whole number; give 1 or more",
        "f.yaml:4: key 'rat' of the config is unknown; did you mean 'rate'?",
    ]


def test_a_checker_that_found_nothing_raises_nothing():
    checker = Checker(Document({"name": "x"}))
    assert checker.mapping((), {"name": "x"}, {"name": TEXT}, "it") == {"name": "x"}
    checker.raise_all()
