"""The page about runs and the glossary are true: what they show is printed, their words exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from msgrad.auditing._rows import VERDICTS
from msgrad.cli import _main
from msgrad.cli._terminal import BROKEN, FOUND, OK, STOPPED, UNUSABLE
from msgrad.runs import _dry_run
from tests.documents.documents import ROOT, blocks_of, parts, printed_by

RUNS = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
FATES = ("TRAINS", "HELD", "FROZEN", "STOPPED", "ASIDE", "ADAPTS", "KEPT", "UNTRAINABLE")


def test_plan_prints_what_the_page_shows_of_it(capsys: pytest.CaptureFixture[str]):
    first, second = parts(RUNS, "text")[0].split("\n\n")
    assert _main.main(["plan", str(ROOT / "configs" / "digits_transfer.yaml")]) == OK
    text = capsys.readouterr().out
    assert first in text
    assert text.endswith(second)


def test_the_program_prints_what_the_page_says(tmp_path: Path):
    for name in ("configs", "data", "tasks"):
        (tmp_path / name).symlink_to(ROOT / name)
    assert printed_by("docs/runs.md", tmp_path) == [said for _, said in blocks_of("docs/runs.md")]


def test_the_exit_codes_are_those_of_the_command_line():
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", RUNS, re.MULTILINE)]
    assert codes == [OK, FOUND, UNUSABLE, BROKEN, STOPPED]


@pytest.mark.parametrize("word", [*(getattr(_dry_run, name) for name in FATES), *VERDICTS])
def test_every_word_of_a_table_stands_in_the_glossary(word: str):
    assert f"`{word}`" in GLOSSARY
