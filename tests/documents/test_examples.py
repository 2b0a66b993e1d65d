"""The examples run as a user runs them, and what they print is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRINTED = re.compile(
    r"conv1\.weight\nTensor\(shape=\[6, 1, 4, 4\], dtype=Float32, value=\n(.+?)\)\n", re.DOTALL
)


def run_example(name):
    """Run an example in the current folder and return what it prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / name)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["stop_conv1.py", "freeze_conv1.py"])
def test_the_original_experiment_prints_conv1_from_the_graph_and_it_stays(name):
    output = run_example(name)
    printed = PRINTED.findall(output)
    assert len(printed) == 3
    assert len(set(printed)) == 1
    rows = dict(line.split(maxsplit=1) for line in output.splitlines()[-6:-1])
    held = {name for name, row in rows.items() if row.endswith("bits equal")}
    assert held == {"conv1.weight"}
    assert set(rows) - held == {"conv2.weight", "conv2.bias", "conv3.weight", "conv3.bias"}


def test_a_wrapper_of_ones_own_acts_and_changes_no_name():
    """All weights are ones: 2 behind the first layer, 4 behind the last, 4 + 2 with a skip."""
    lines = dict(line.split(": ", 1) for line in run_example("own_wrapper.py").splitlines())
    assert lines == {
        "plain": "[[4. 4.]]",
        "wrapped": "['2']",
        "with the skip": "[[6. 6.]]",
        "names": "['0.weight', '0.bias', '2.weight', '2.bias']",
        "not loaded": "([], [])",
        "unwrapped": "['2']",
        "without it": "[[4. 4.]]",
    }
