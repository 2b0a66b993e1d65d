"""Seeing is cheap: a snapshot, a monitor every 10 and every 100 steps, beside the step itself.

A step that is recorded and one that is not are each timed against the step alone; a monitor every
n steps costs one of the first and n - 1 of the second.

python benchmarks/watching.py            times as shares of the step
python benchmarks/watching.py --short    compile counts only
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from measure import counted, heading, in_turns, is_short, ratio, table, waits
from mindspore import nn
from nets import IMAGE, LABELS, momentum, resnet50_or_small

import msgrad as mg

ROUNDS = 15
EVERY = (10, 100)


def step_of(short: bool) -> mg.TrainStep:
    """Make a step over a ResNet-50."""
    net = resnet50_or_small(short)
    return mg.TrainStep(net, momentum, nn.CrossEntropyLoss(), unreached="allow").set_train()


def inside(
    monitor: mg.WeightMonitor, number: int, call: Callable[[], object]
) -> Callable[[], None]:
    """Do a step of this number while it is watched."""

    def watched() -> None:
        with monitor.step(number):
            call()

    return watched


def look(net: nn.Cell) -> Callable[[], None]:
    """Take a snapshot and compare it."""

    def snapshot() -> None:
        counted(mg.Snapshot(net).moved(), [], name="moved since")

    return snapshot


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    alone, step = step_of(short), step_of(short)
    monitor = mg.WeightMonitor(step.network, "*", every=EVERY[-1])
    monitor.attach(step)
    call = waits(step, IMAGE, LABELS)
    ways = {
        "alone": waits(alone, IMAGE, LABELS),
        "other": inside(monitor, 1, call),
        "recorded": inside(monitor, EVERY[-1], call),
        "snapshot": look(step.network),
    }
    times = in_turns(ways, 2 if short else ROUNDS)
    monitor.detach()
    counted(step.compilations, 1, name="compilations with a monitor")
    counted({r.step for r in monitor.records}, {EVERY[-1]}, name="recorded steps")
    if short:
        return table(["what", "compiles"], [["monitor and snapshot", step.compilations - 1]])
    recorded, other = ratio(times, "recorded", "alone"), ratio(times, "other", "alone")
    usual = 1000 * statistics.median(times["alone"])
    rows: list[list[object]] = [["step alone, ms", f"{usual:.0f}"]]
    rows += [["a step recorded / alone", recorded], ["a step not recorded / alone", other]]
    for every in EVERY:
        more = (recorded.median + (every - 1) * other.median) / every - 1
        rows.append([f"monitor, every {every} steps, costs more", f"{more:.2%}"])
    rows.append(["a snapshot and comparing it / step", ratio(times, "snapshot", "alone")])
    table(["what", "figure"], rows)
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
