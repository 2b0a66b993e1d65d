"""Holding at run time compiles nothing, and costs nothing while nothing is held.

python benchmarks/hold.py            times as ratios
python benchmarks/hold.py --short    compile counts only
"""

from __future__ import annotations

from collections.abc import Callable

from measure import counted, heading, in_turns, is_short, milliseconds, ratio, table, waits
from mindspore import Parameter, nn
from nets import IMAGE, LABELS, adam, resnet18_or_small

import msgrad as mg

WIDTH = 64
ROUNDS = 20


def holding(parameters: list[Parameter]) -> mg.HoldOptimizer:
    """Make one that can hold all of them."""
    return mg.HoldOptimizer(adam(parameters))


def step_with(optimizer: Callable[..., nn.Cell], short: bool) -> mg.TrainStep:
    """Make a step and run it once."""
    step = mg.TrainStep(
        resnet18_or_small(short, WIDTH), optimizer, nn.CrossEntropyLoss()
    ).set_train()
    waits(step, IMAGE, LABELS)()
    return step


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    plain, held = step_with(adam, short), step_with(holding, short)
    hold = held.optimizer
    state = {
        "nothing held": lambda: None,
        "backbone held": lambda: hold.hold("rest.*"),
        "half the rows of the backbone held": lambda: half(hold),
    }
    rows = []
    for name, do in state.items():
        hold.release("*")
        do()
        ways = {"held": waits(held, IMAGE, LABELS), "plain": waits(plain, IMAGE, LABELS)}
        times = in_turns(ways, 1 if short else ROUNDS)
        if not short:
            rows.append([name, milliseconds(times["plain"]), ratio(times, "held", "plain"), 0])
        counted(held.compilations, 1, name=f"compilations, {name}")
    if short:
        return table(["states", "graphs compiled"], [[len(state), held.compilations]])
    table(["state", "step without, ms", "step ratio", "compiles of the change"], rows)
    return None


def half(hold: mg.HoldOptimizer) -> None:
    """Hold the first half of the rows of every convolution and dense weight behind the first."""
    for parameter in hold.parameters:
        if parameter.name.startswith("rest.") and parameter.ndim > 1:
            hold.hold_rows(parameter.name, list(range(parameter.shape[0] // 2)))


if __name__ == "__main__":
    main(short=is_short(__doc__))
