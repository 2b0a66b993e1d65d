"""Seeing is cheap: a snapshot, a monitor every 10 and every 100 steps, beside the step itself.

python benchmarks/watching.py            times as shares of the step
python benchmarks/watching.py --short    compile counts only
"""

from __future__ import annotations

import time
from contextlib import nullcontext

from measure import counted, heading, is_short, table, waits
from mindspore import Parameter, nn
from nets import IMAGE, LABELS, resnet50_or_small

import msgrad as mg

STEPS = 200
EVERY = (10, 100)


def momentum(parameters: list[Parameter]) -> nn.Momentum:
    """Make the optimizer."""
    return nn.Momentum(parameters, 1e-3, 0.9)


def run(step: mg.TrainStep, steps: int, monitor: mg.WeightMonitor | None) -> float:
    """Run steps in a loop; seconds."""
    call = waits(step, IMAGE, LABELS)
    begun = time.perf_counter()
    for number in range(1, steps + 1):
        with monitor.step(number) if monitor is not None else nullcontext():
            call()
    return time.perf_counter() - begun


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    net = resnet50_or_small(short)
    step = mg.TrainStep(net, momentum, nn.CrossEntropyLoss()).set_train()
    waits(step, IMAGE, LABELS)()
    steps = 2 if short else STEPS
    rows = []
    for every in (1,) if short else EVERY:
        monitor = mg.WeightMonitor(net, "*", every=every)
        alone = run(step, steps, None)
        monitor.attach(step)
        watched = run(step, steps, monitor)
        monitor.detach()
        rows.append([f"monitor, every {every} steps", f"{watched / alone - 1:.2%}"])
    counted(step.compilations, 1, name="compilations with a monitor")
    begun = time.perf_counter()
    before = mg.Snapshot(net)
    counted(before.moved(), [], name="moved since")
    seconds = time.perf_counter() - begun
    rows.append(["snapshot and comparing it", f"{seconds / (alone / steps):.2f} steps"])
    if short:
        return table(["what", "compiles"], [["monitor and snapshot", step.compilations - 1]])
    table(["what", "costs more"], rows)
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
