"""docs/configs.md is true: its keys, its words, and what it says that `msgrad plan` prints."""

from __future__ import annotations

import re

from msgrad.cli import _main
from msgrad.cli._terminal import BROKEN, FOUND, OK, STOPPED, UNUSABLE
from msgrad.plans._keys import RUN_KEYS
from msgrad.runs import _dry_run, _task
from tests.documents.documents import ROOT

TEXT = (ROOT / "docs" / "configs.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_run_key_has_a_row_and_no_other():
    rows = re.findall(r"^\| (`.+?`) \|", section("Keys"), re.MULTILINE)
    assert [key for row in rows for key in re.findall(r"`(\w+)`", row)] == list(RUN_KEYS)


def test_every_fate_is_explained():
    rows = re.findall(r"^\| (.+?) \|", section("What `msgrad plan` says"), re.MULTILINE)
    words = ", ".join(rows)
    for name in ("TRAINS", "HELD", "FROZEN", "STOPPED", "ASIDE", "ADAPTS", "KEPT", "UNTRAINABLE"):
        assert getattr(_dry_run, name) in words


def test_every_function_of_a_task_is_named():
    assert set(re.findall(r"^def (\w+)\(", TEXT, re.MULTILINE)) - {"generator_loss"} == set(
        _task._KNOWN
    )


def test_plan_prints_what_the_document_shows(capsys):
    shown = re.search(r"^```text\n(.+?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert shown is not None
    assert _main.main(["plan", str(ROOT / "configs" / "digits_freeze_conv1.yaml")]) == OK
    assert capsys.readouterr().out == shown[1]


def test_the_exit_codes_are_those_of_the_command_line():
    line = TEXT.partition("Exit codes: ")[2].replace("\n", " ")
    numbers = [int(n) for n in re.findall(r"(?:^|; )(\d+) ", line)]
    assert numbers == [OK, FOUND, UNUSABLE, BROKEN, STOPPED]


def test_every_config_stands_in_the_table_of_those_that_are_ready():
    rows = re.findall(r"^\| (`.+?`) \|", section("Those that are ready"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {path.stem for path in (ROOT / "configs").glob("*.yaml")}
