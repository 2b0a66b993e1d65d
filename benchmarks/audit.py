"""The audit of a ResNet-18 costs two compiles and a few steps, and one copy of weights and state.

python benchmarks/audit.py             compiles, runs, seconds, and memory
python benchmarks/audit.py --short     compiles and runs only
"""

from __future__ import annotations

import argparse
import resource
import time
import tracemalloc
from collections import Counter
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.api import _cell_graph_executor  # pyright: ignore  # private, 2.7 to 2.10

import msgrad as mg

MB = 1e6


class Block(nn.Cell):
    """Two convolutions and a way around them."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3)
        self.bn2 = nn.BatchNorm2d(out)
        shape_stays = stride == 1 and into == out
        self.down = (
            nn.Identity()
            if shape_stays
            else nn.SequentialCell(nn.Conv2d(into, out, 1, stride), nn.BatchNorm2d(out))
        )

    def construct(self, x: Tensor) -> Tensor:
        """Return the features of the next stage."""
        y = self.bn2(self.conv2(ops.relu(self.bn1(self.conv1(x)))))
        return ops.relu(y + self.down(x))


class ResNet18(nn.Cell):
    """The usual one, for 1,000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.SequentialCell(
            nn.Conv2d(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, "same")
        )
        widths = [64, 64, 128, 256, 512]
        blocks = []
        for stage in range(4):
            into, out = widths[stage], widths[stage + 1]
            blocks += [Block(into, out, 1 if stage == 0 else 2), Block(out, out, 1)]
        self.blocks = nn.SequentialCell(*blocks)
        self.fc = nn.Dense(512, 1000)

    def construct(self, x: Tensor) -> Tensor:
        """Return one number for each class."""
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def count(counts: Counter[str]) -> None:
    """Count what is compiled, and what is run of the cells that a graph stands for."""
    executor = type(_cell_graph_executor)
    compile_, run = executor.compile, executor.__call__

    def compiles(self: Any, cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        phase, fresh = compile_(self, cell, *args, **kwargs)
        counts[f"compiles of {type(cell).__name__}"] += fresh
        return phase, fresh

    def runs(self: Any, cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        counts[f"runs of {type(cell).__name__}"] += 1
        return run(self, cell, *args, **kwargs)

    executor.compile, executor.__call__ = compiles, runs


def peak_rss() -> float:
    """Return the most memory that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def print_row(label: str, value: str) -> None:
    """Print one line of the table."""
    print(f"{label:44} {value:>12}")


def measure(*, short: bool) -> None:
    """Audit a step that never ran: its own graph is compiled in the audit."""
    counts: Counter[str] = Counter()
    count(counts)
    net = ResNet18()
    step = mg.TrainStep(net, lambda p: nn.Adam(p, 1e-3), nn.CrossEntropyLoss()).set_train()
    x = Tensor(np.random.default_rng(0).standard_normal((8, 3, 32, 32)).astype(np.float32))
    y = Tensor(np.arange(8, dtype=np.int32))
    before = peak_rss()
    tracemalloc.start()
    begun = time.perf_counter()
    audit = mg.audit(step, x, y)
    seconds = time.perf_counter() - begun
    _, copies = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    audit.check()
    for label, number in sorted(counts.items()):
        print_row(label, str(number))
    print_row("compiles in all", str(sum(n for k, n in counts.items() if "compiles" in k)))
    if short:
        return
    after = peak_rss()
    begun = time.perf_counter()
    for _ in range(3):
        float(step(x, y))
    each = (time.perf_counter() - begun) / 3
    state = sum(p.nbytes for p in step.get_parameters())
    print_row("weights and optimizer state, MB", f"{state / MB:.0f}")
    print_row("copies and comparing them, at their peak, MB", f"{copies / MB:.0f}")
    print_row("peak memory of the process before, MB", f"{before / MB:.0f}")
    print_row("and after the audit, two graphs in it, MB", f"{after / MB:.0f}")
    print_row("a step, s", f"{each:.2f}")
    print_row("the audit, s", f"{seconds:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What an audit costs.")
    parser.add_argument("--short", action="store_true", help="compiles and runs only")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(0)
    measure(short=arguments.short)
