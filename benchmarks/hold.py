"""Holding at run time compiles nothing, and costs nothing while nothing is held.

Timed is the update alone, the gradients given; beside it the step of a ResNet-18 of width 32.

python benchmarks/hold.py            times as ratios
python benchmarks/hold.py --short    compile counts only
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from measure import counted, heading, in_turns, is_short, milliseconds, random, ratio, table, waits
from mindspore import Parameter, Tensor, nn
from nets import IMAGE, LABELS, adam, resnet18_or_small

import msgrad as mg

WIDTH = 64
STEP_WIDTH = 32
ROUNDS = 50
STEP_ROUNDS = 8


def holding(parameters: list[Parameter]) -> mg.HoldOptimizer:
    """Make one that can hold all of them."""
    return mg.HoldOptimizer(adam(parameters))


def half(hold: mg.HoldOptimizer) -> None:
    """Hold the first half of the rows of every convolution and dense weight behind the first."""
    for parameter in hold.parameters:
        if parameter.name.startswith("rest.") and parameter.ndim > 1:
            hold.hold_rows(parameter.name, list(range(parameter.shape[0] // 2)))


STATES: dict[str, Callable[[mg.HoldOptimizer], object]] = {
    "nothing held": lambda hold: None,
    "backbone held": lambda hold: hold.hold("rest.*"),
    "half the rows of the backbone held": half,
}


def update_with(optimizer: Callable[..., nn.Cell], width: int, short: bool) -> nn.Cell:
    """Make an optimizer over a network and run it once."""
    made = optimizer(resnet18_or_small(short, width).trainable_params())
    updating(made, gradients(made))()
    return made


def updating(optimizer: nn.Cell, values: tuple[Tensor, ...]) -> Callable[[], object]:
    """Return an update that is done when the last weight is there."""

    def update() -> None:
        optimizer(values)
        optimizer.parameters[-1].asnumpy()

    return update


def gradients(optimizer: nn.Cell) -> tuple[Tensor, ...]:
    """Make a gradient for each weight."""
    return tuple(random(*p.shape, seed=i) for i, p in enumerate(optimizer.parameters))


def step_with(optimizer: Callable[..., nn.Cell], short: bool) -> mg.TrainStep:
    """Make a step and run it once."""
    net, loss = resnet18_or_small(short, STEP_WIDTH), nn.CrossEntropyLoss()
    step = mg.TrainStep(net, optimizer, loss, unreached="allow").set_train()
    waits(step, IMAGE, LABELS)()
    return step


def rows(*, short: bool) -> Iterator[list[object]]:
    """Time an update and a step in each state of what is held."""
    plain, held = update_with(adam, WIDTH, short), update_with(holding, WIDTH, short)
    plain_step, held_step = step_with(adam, short), step_with(holding, short)
    values = gradients(plain)
    for name, do in STATES.items():
        for hold in (held, held_step.optimizer):
            hold.release("*")
            do(hold)
        updates = {"held": updating(held, values), "plain": updating(plain, values)}
        times = in_turns(updates, 1 if short else ROUNDS)
        steps = {"held": waits(held_step, IMAGE, LABELS), "plain": waits(plain_step, IMAGE, LABELS)}
        in_steps = in_turns(steps, 1 if short else STEP_ROUNDS)
        graphs = len(held.compile_cache), held_step.compilations
        counted(graphs, (1, 1), name=f"compilations, {name}")
        yield [
            name,
            milliseconds(times["plain"]),
            ratio(times, "held", "plain"),
            milliseconds(in_steps["plain"]),
            ratio(in_steps, "held", "plain"),
            0,
        ]


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    if short:
        states = [row[0] for row in rows(short=True)]
        return table(["states", "graphs compiled"], [[len(states), 1]])
    headers = ["state", "Adam, ms", "holding Adam / Adam", "step, ms", "step holding / step"]
    table([*headers, "compiles of the change"], rows(short=False))
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
