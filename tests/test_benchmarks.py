from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = {"measure.py", "nets.py"}
BENCHMARKS = sorted(p.name for p in (ROOT / "benchmarks").glob("*.py") if p.name not in SHARED)


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_short_form_counts_what_the_benchmark_claims(name, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / name), "--short"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 2
