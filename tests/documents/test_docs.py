"""The walk to the wrong weight is true: each program prints what the document says."""

from __future__ import annotations

import re

import pytest

import msgrad as mg
from msgrad.auditing._rows import VERDICTS
from tests.documents.documents import ROOT, blocks_of, printed_by

DOCUMENT = "docs/finding_the_wrong_weight.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return printed_by(DOCUMENT, tmp_path_factory.mktemp("walk"))


@pytest.mark.parametrize("number", range(len(blocks_of(DOCUMENT))))
def test_a_program_of_the_walk_prints_what_it_says(printed: list[str], number: int):
    assert printed[number] == blocks_of(DOCUMENT)[number][1]


def test_every_block_of_python_is_run():
    assert TEXT.count("```python\n") == len(blocks_of(DOCUMENT))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_is_shown_in_real_output(verdict: str):
    shown = "\n".join(output for _, output in blocks_of(DOCUMENT))
    assert re.search(rf"^{verdict}: |  {verdict}  ", shown, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bmg\.(\w+)", TEXT))))
def test_what_the_walk_names_is_public(name: str):
    assert name in mg.__all__
