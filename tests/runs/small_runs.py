"""Runs of two layers on 24 rows, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from msgrad.runs import build, load_config

ROOT = Path(__file__).resolve().parents[2]
BASE = f"""
task: {ROOT}/tests/nets/small_task.py
device_target: CPU
epoch_size: 2
batch_size: 8
optimizer: {{name: AdamWeightDecay, learning_rate: 0.1, weight_decay: 0.1}}
"""
FREEZE = "plan: [{freeze: body}]"
STEPS = """
steps:
  body: {trains: body, loss: body_loss}
  head: {trains: head, loss: head_loss, optimizer: {name: SGD, learning_rate: 0.5}}
"""
EAGER = ("mode=pynative", "unreached=allow")  # nothing is compiled
BODY, HEAD = {"body.weight", "body.bias"}, {"head.weight", "head.bias"}


def config(text="", *changes):
    """Write a config into the working directory and read it."""
    Path("c.yaml").write_text(BASE + text)
    return load_config("c.yaml", changes)


def eager(*changes, text=FREEZE):
    """Build a run that compiles nothing."""
    return build(config(text, *EAGER, *changes))


def values(net):
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        # the last bits differ between two compiled graphs on the CPU
        np.testing.assert_allclose(value, other[name], rtol=1e-5, atol=1e-7)


class Killed(Exception):
    """Stands for the end of a process."""


def killed_after(epoch):
    def report(done):
        if done.epoch == epoch:
            raise Killed(f"after epoch {epoch}")

    return report


def content(folder):
    """Return every file under a folder, byte for byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }
