"""`msgrad audit`: a few real steps of a config, and what happened to every weight."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from msgrad._files import as_json
from msgrad.cli._terminal import FOUND, OK
from msgrad.runs import StepAudit, audits, build, first_batch, load_config


def run(given: argparse.Namespace) -> int:
    """Print the audit of every train step in every stage; 1 where one found problems."""
    config = load_config(given.config, given.set)
    # a batch of the task stands in for data that is not there
    audited = build(config, data=False)
    batch, absent = first_batch(audited)
    if absent is not None and audited.rank == 0:
        print(f"msgrad: {absent}\nmsgrad: the audit takes a batch of the task", file=sys.stderr)
    settings = config.plan.audit
    found = list(audits(audited, batch, *([settings.steps] if settings is not None else [])))
    if audited.rank == 0:
        _print(found, given)
        _write_pages(found, given.html)
    return OK if all(each.audit.ok for each in found) else FOUND


def _print(found: list[StepAudit], given: argparse.Namespace) -> None:
    if given.json:
        content = [
            {"step": each.step, "stage": each.stage, **json.loads(each.audit.to_json())}
            for each in found
        ]
        print(as_json(content))
        return
    for number, each in enumerate(found):
        if len(found) > 1:
            print(("\n" if number else "") + f"--- {_called(each)}")
        print(each.audit)


def _called(found: StepAudit) -> str:
    stage = [] if found.stage is None else [f"stage {found.stage}"]
    return ", ".join([*stage, f"step {found.step}"])


def _write_pages(found: list[StepAudit], path: str | None) -> None:
    if path is None:
        return
    first = Path(path)
    for number, each in enumerate(found, 1):
        page = first if len(found) == 1 else first.with_stem(f"{first.stem}.{number}")
        each.audit.to_html(page)
        print(f"wrote {page}", file=sys.stderr)
