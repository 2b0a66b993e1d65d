"""The site holds every public name; `scripts/docs.sh` builds it and follows its links."""

from __future__ import annotations

import re
from types import FunctionType, ModuleType

import pytest

import msgrad as mg
from msgrad import errors, rules, runs
from tests.documents.documents import ROOT, blocks_of, printed_by

REFERENCE = ROOT / "docs" / "reference"
INDEX = (REFERENCE / "index.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[`([\w.]+)`\]\((\w+\.md)#([\w.]+)\) \| .+ \|$", re.MULTILINE)
LISTED = {name: (page, anchor) for name, page, anchor in ROW.findall(INDEX)}


def public(module: ModuleType, prefix: str = "") -> list[str]:
    """Return the functions, classes, aliases and modules that a public module offers."""
    here = [
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__
    ]
    listed = getattr(module, "__all__", here)
    # an alias of types is a text at run time, and so are constants
    kinds = (type, ModuleType, FunctionType, str)
    there = [name for name in listed if isinstance(getattr(module, name), kinds)]
    return [prefix + name for name in there if not name.isupper()]


NAMES = sorted({*public(mg), *public(errors), *public(rules, "rules."), *public(runs, "runs.")})


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_line_of_the_reference_and_stands_on_its_page(name: str):
    """Give it a row in docs/reference/index.md, and `::: msgrad.name` on the page of its job."""
    page, anchor = LISTED[name]
    text = (REFERENCE / page).read_text(encoding="utf-8")
    assert anchor.split(".")[-1] == name.split(".")[-1]
    assert text.count(f"::: {anchor}\n") == 1


def test_the_reference_lists_no_name_that_is_not_public():
    assert sorted(set(LISTED) - set(NAMES)) == []


def test_the_program_of_the_start_page_prints_what_it_says(tmp_path):
    ((_, said),) = blocks_of("docs/index.md")
    assert printed_by("docs/index.md", tmp_path) == [said]
