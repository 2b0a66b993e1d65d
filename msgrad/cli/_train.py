"""`msgrad train`: a run of a config, and what moved in it."""

from __future__ import annotations

import argparse
import sys

from msgrad.cli._terminal import FOUND, OK, Progress
from msgrad.errors import AuditError
from msgrad.runs import Epoch, build, load_config, train


def run(given: argparse.Namespace) -> int:
    """Train, print each epoch and what moved; 1 where a held weight moved."""
    run = build(load_config(given.config, given.set))
    tell = run.rank == 0 and not given.json
    if tell:
        print(run, flush=True)
    try:
        result = train(
            run,
            resume=given.resume,
            overwrite=given.overwrite,
            report=_print_epoch if tell else lambda _: None,
            tick=Progress(tell),
        )
    except AuditError as error:
        print(f"msgrad: {error}", file=sys.stderr)
        return FOUND
    if run.rank == 0:
        print(result if tell else result.to_json())
    return FOUND if result.broken else OK


def _print_epoch(epoch: Epoch) -> None:
    # at once, into a file too
    print(epoch, flush=True)
