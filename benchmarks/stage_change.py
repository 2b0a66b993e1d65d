"""A stage change costs the compile of its graph, once; going back to a stage costs no compile.

python benchmarks/stage_change.py            times as ratios
python benchmarks/stage_change.py --short    compile counts only
"""

from __future__ import annotations

import statistics

from measure import counted, heading, is_short, ratio, seconds, table, waits
from mindspore import nn
from nets import IMAGE, LABELS, adam, resnet18_or_small, train_by_hand

import msgrad as mg

WIDTH = 16
ROUNDS = 7


def change(short: bool) -> tuple[dict[str, float], float, float, int]:
    """Train in a first stage, unfreeze; return the first step of the new stage on both sides.

    Beside them the seconds of entering a known stage, what the first step there takes more than
    those around it, and how many graphs were compiled.
    """
    hand_net, net = resnet18_or_small(short, WIDTH), resnet18_or_small(short, WIDTH)
    for parameter in hand_net.first.get_parameters():
        parameter.requires_grad = False
    waits(train_by_hand(hand_net), IMAGE, LABELS)()
    step = mg.TrainStep(net, adam, nn.CrossEntropyLoss()).set_train()
    freeze = mg.freeze(net, "first", statistics=False)
    ours = waits(step, IMAGE, LABELS)
    ours()
    freeze.undo()
    for parameter in hand_net.get_parameters():
        if not parameter.name.endswith(("moving_mean", "moving_variance")):
            parameter.requires_grad = True
    found = {"hand": seconds(waits(train_by_hand(hand_net), IMAGE, LABELS)), "ours": seconds(ours)}
    mg.freeze(net, "first", statistics=False)
    ours()  # the third stage is the first one again
    mg.unfreeze(net, "first")
    entering = seconds(lambda: step.prepare(IMAGE, LABELS, runs=True))
    back = seconds(ours)
    again = statistics.median(seconds(ours) for _ in range(5))
    return found, entering, back - again, step.compilations


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    rounds = [change(short) for _ in range(1 if short else ROUNDS)]
    for *_, compilations in rounds:
        counted(compilations, 2, name="compilations of two stages entered four times")
    if short:
        return table(["stages entered", "graphs compiled"], [[4, 2]])
    times = {way: [found[way] for found, *_ in rounds] for way in ("ours", "hand")}
    entering = 1000 * statistics.median(enter for _, enter, _, _ in rounds)
    more = 1000 * statistics.median(extra for _, _, extra, _ in rounds)
    headers = ["new stage / new train cell by hand", "entering a known stage, ms"]
    headers += ["its first step, ms more than others", "compiles"]
    table(headers, [[ratio(times, "ours", "hand"), f"{entering:.1f}", f"{more:.1f}", 0]])
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
