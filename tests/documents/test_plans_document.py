"""The page about plans is true: its plan is read, its program prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import msgrad as mg
from msgrad.plans._keys import AuditSettings
from msgrad.plans._rule import FIELDS
from tests.documents.documents import ROOT, blocks_of

DOCUMENT = "docs/plans.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_says(capsys):
    (plan,) = re.findall(r"```yaml\n(.+?)```", TEXT, re.DOTALL)
    Path("plan.yaml").write_text(plan, encoding="utf-8")
    ((program, printed),) = blocks_of(DOCUMENT)
    exec(compile(program, DOCUMENT, "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_table_of_rules_names_every_kind_and_field():
    rows = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (.+) \|$", TEXT, re.MULTILINE))
    assert list(rows) == list(FIELDS)
    for kind, told in rows.items():
        assert set(FIELDS[kind]) - set(re.findall(r"`(\w+)`", told)) == set()


def test_the_audit_that_is_shown_is_the_default():
    (shown,) = re.findall(r"`audit: (\{.+?\})`", TEXT)
    assert mg.Plan.from_dict({"audit": {}}).audit == AuditSettings()
    assert shown == "{steps: 3, when: before, on_problem: error}"
