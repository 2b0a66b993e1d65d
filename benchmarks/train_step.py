"""A TrainStep is MindSpore's train cell over the same weights, and half a millisecond of Python.

python benchmarks/train_step.py            operators, and times
python benchmarks/train_step.py --short    operators and compile counts only
"""

from __future__ import annotations

import statistics
import time

from measure import (
    counted,
    difference,
    heading,
    in_turns,
    is_short,
    milliseconds,
    operators,
    random,
    ratio,
    table,
    waits,
)
from mindspore import nn
from nets import IMAGE, LABELS, adam, resnet18_or_small, train_by_hand

import msgrad as mg

WIDTH = 64
CALLS = 200
ROUNDS = 10


def same_operators(short: bool) -> tuple[nn.Cell, nn.Cell, list[object]]:
    """Compare the graphs of both on a ResNet-18."""
    theirs = train_by_hand(resnet18_or_small(short, WIDTH))
    ours = mg.TrainStep(resnet18_or_small(short, WIDTH), adam, nn.CrossEntropyLoss())
    ours.set_train()
    for step in (theirs, ours):
        for _ in range(2):
            waits(step, IMAGE, LABELS)()
    found = operators(ours.inner), operators(theirs)
    counted(difference(*found), "none", name="operators of ResNet-18")
    counted(ours.compilations, 1, name="compilations")
    return theirs, ours, [sum(found[0].values()), difference(*found)]


def python_time(count: int) -> float:
    """Time what a TrainStep of this many parameters does before its graph; seconds, the median."""
    net = nn.SequentialCell(*(nn.Dense(1, 1) for _ in range(count // 2)))
    step = mg.TrainStep(net, adam, nn.MSELoss(), unreached="allow").set_train()
    x = random(1, 1)
    step.prepare(x, x, runs=True)
    # all but the graph, which is not compiled here
    step.__dict__["inner"] = lambda *inputs: inputs[0]
    step(x, x)
    times = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        step(x, x)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    theirs, ours, cells = same_operators(short)
    if short:
        return table(["operators", "differ by"], [cells])
    ways = {"ours": waits(ours, IMAGE, LABELS), "theirs": waits(theirs, IMAGE, LABELS)}
    times = in_turns(ways, ROUNDS)
    small, large = python_time(100), python_time(1000)
    share = large / statistics.median(times["theirs"])
    headers = ["operators", "differ by", "step, ms", "step ratio"]
    headers += ["Python per call, 100 parameters, ms", "1,000 parameters, ms", "of a step"]
    row = [*cells, milliseconds(times["theirs"]), ratio(times, "ours", "theirs")]
    table(headers, [[*row, f"{1e3 * small:.3f}", f"{1e3 * large:.3f}", f"{share:.2%}"]])
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
