"""The page about patterns is true: each row of its tables selects what it says."""

from __future__ import annotations

import re

import pytest
from mindspore import nn

import msgrad as mg
from tests.documents.documents import ROOT, blocks_of, printed_by, prose

DOCUMENT = "docs/patterns.md"
WEIGHTS, CELLS = (
    prose((ROOT / DOCUMENT).read_text(encoding="utf-8")).partition("\n## Cells\n")[index]
    for index in (0, 2)
)
ROW = re.compile(r"^\| `([^`]+)` \| (`.+?`) \| .+ \|$", re.MULTILINE)


@pytest.fixture
def net() -> nn.Cell:
    """Return the network of the page."""
    space: dict = {}
    exec(blocks_of(DOCUMENT)[0][0], space)
    return space["net"]


@pytest.mark.parametrize(("patterns", "names"), ROW.findall(WEIGHTS))
def test_patterns_select_the_weights_of_their_row(net: nn.Cell, patterns: str, names: str):
    given = eval(f"[{patterns}]", {"mg": mg, "nn": nn, "net": net})
    assert mg.select(net, *given).names == re.findall(r"`([^`]+)`", names)


@pytest.mark.parametrize(("patterns", "paths"), ROW.findall(CELLS))
def test_patterns_choose_the_cells_of_their_row(net: nn.Cell, patterns: str, paths: str):
    given = eval(f"[{patterns}]", {"nn": nn, "net": net})
    assert mg.stop_gradient(net, *given) == re.findall(r"`([^`]+)`", paths)


def test_both_tables_are_read():
    assert (len(ROW.findall(WEIGHTS)), len(ROW.findall(CELLS))) == (16, 5)


def test_the_programs_of_the_page_print_what_it_says(tmp_path):
    assert printed_by(DOCUMENT, tmp_path) == [said for _, said in blocks_of(DOCUMENT)]
