"""A TrainStep is MindSpore's train cell over the same weights, and half a millisecond of Python.

python benchmarks/train_step.py            operators, and times
python benchmarks/train_step.py --short    operators and compile counts only
"""

from __future__ import annotations

import statistics
import time
from functools import partial

from measure import (
    compiled_in_turns,
    counted,
    difference,
    heading,
    is_short,
    milliseconds,
    operators,
    random,
    ratio,
    steps_in_turns,
    table,
)
from mindspore import nn
from nets import IMAGE, LABELS, adam, resnet18_or_small, train_by_hand

import msgrad as mg

WIDTH = 16
CALLS = 200
ROUNDS = 8
NETS = 2


def theirs(short: bool) -> nn.Cell:
    """Make MindSpore's own train cell over a ResNet-18."""
    return train_by_hand(resnet18_or_small(short, WIDTH))


def ours(short: bool) -> mg.TrainStep:
    """Make a TrainStep over one."""
    net = resnet18_or_small(short, WIDTH)
    return mg.TrainStep(net, adam, nn.CrossEntropyLoss(), unreached="allow").set_train()


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
    sides = {"theirs": partial(theirs, short), "ours": partial(ours, short)}
    _, made = compiled_in_turns(sides, (IMAGE, LABELS), 1 if short else NETS)
    found = operators(made["ours"][0].inner), operators(made["theirs"][0])
    counted(difference(*found), "none", name="operators of ResNet-18")
    for step in made["ours"]:
        counted(step.compilations, 1, name="compilations")
    cells = [sum(found[0].values()), difference(*found)]
    if short:
        return table(["operators", "differ by"], [cells])
    times = steps_in_turns(made, (IMAGE, LABELS), ROUNDS)
    small, large = python_time(100), python_time(1000)
    share = python_time(len(made["ours"][0].trainable)) / statistics.median(times["theirs"])
    headers = ["operators", "differ by", "step, ms", "step ratio"]
    headers += [
        "Python per call, 100 parameters, ms",
        "1,000 parameters, ms",
        "ResNet-18, of a step",
    ]
    row = [*cells, milliseconds(times["theirs"]), ratio(times, "ours", "theirs")]
    table(headers, [[*row, f"{1e3 * small:.3f}", f"{1e3 * large:.3f}", f"{share:.3%}"]])
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
