"""A stage change costs the compile of its graph, once; going back to a stage costs no compile.

python benchmarks/stage_change.py            times as ratios
python benchmarks/stage_change.py --short    compile counts only
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from measure import counted, heading, is_short, ratio, table, waits
from mindspore import Parameter, nn
from nets import IMAGE, LABELS, lenet, resnet18

import msgrad as mg

ROUNDS = 7


def network(short: bool) -> nn.Cell:
    """Make a ResNet-18, or where only to count a LeNet-5."""
    return lenet(None) if short else resnet18(None, 16)


def adam(parameters: list[Parameter]) -> nn.Adam:
    """Make the optimizer of both sides."""
    return nn.Adam(parameters, 1e-3)


def seconds(call: Callable[[], object]) -> float:
    """Time one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def by_hand(net: nn.Cell) -> nn.Cell:
    """Build a new train cell over what is trainable now."""
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    return nn.TrainOneStepCell(loss, adam(net.trainable_params())).set_train()


def change(short: bool) -> tuple[dict[str, float], float, int]:
    """Train in a first stage, unfreeze; return the first step of the new stage on both sides.

    Beside them what a step in a known stage costs more than the step before it, and how many
    graphs were compiled.
    """
    hand_net, net = network(short), network(short)
    for parameter in hand_net.first.get_parameters():
        parameter.requires_grad = False
    waits(by_hand(hand_net), IMAGE, LABELS)()
    step = mg.TrainStep(net, adam, nn.CrossEntropyLoss()).set_train()
    freeze = mg.freeze(net, "first", statistics=False)
    ours = waits(step, IMAGE, LABELS)
    ours()
    freeze.undo()
    for parameter in hand_net.get_parameters():
        if not parameter.name.endswith(("moving_mean", "moving_variance")):
            parameter.requires_grad = True
    found = {"hand": seconds(waits(by_hand(hand_net), IMAGE, LABELS)), "ours": seconds(ours)}
    mg.freeze(net, "first", statistics=False)
    ours()  # the third stage is the first one again
    usual = statistics.median(seconds(ours) for _ in range(5))
    mg.unfreeze(net, "first")
    back = seconds(ours)
    again = statistics.median(seconds(ours) for _ in range(5))
    return found, back - max(usual, again), step.compilations


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    rounds = [change(short) for _ in range(1 if short else ROUNDS)]
    for _, _, compilations in rounds:
        counted(compilations, 2, name="compilations of two stages entered four times")
    if short:
        return table(["stages entered", "graphs compiled"], [[4, 2]])
    times = {way: [found[way] for found, _, _ in rounds] for way in ("ours", "hand")}
    back = 1000 * statistics.median(extra for _, extra, _ in rounds)
    headers = ["new stage / new train cell by hand", "known stage, ms more than a step", "compiles"]
    table(headers, [[ratio(times, "ours", "hand"), f"{back:.1f}", 0]])
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
