"""Replaying what is frozen: an epoch of ResNet-50 without its frozen part, to the same bits.

python benchmarks/replay.py            times as ratios
python benchmarks/replay.py --short    operators and hits only
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from measure import counted, heading, is_short, operators, table
from mindspore import dataset, nn
from nets import momentum, resnet50_or_small

import msgrad as mg

SIZE, BATCH, BATCHES, EPOCHS = 64, 8, 6, 4
PARTS = ("conv1", "bn1", "layer1", "layer2", "layer3", "layer4")
TRAINED = {"head": 6, "last stage and head": 5}


def step_of(count: int, short: bool) -> mg.TrainStep:
    """Freeze the first cells of a ResNet-50, or where only to count of a small one."""
    ms.set_seed(0)
    net = resnet50_or_small(short)
    mg.freeze(net, *PARTS[:count])
    return mg.TrainStep(net, momentum, nn.CrossEntropyLoss(), unreached="allow").set_train()


def images(size: int, batches: int) -> dataset.Dataset:
    """Return random images of ten classes, in a fixed order."""
    count = BATCH * batches
    rows = np.random.default_rng(0).standard_normal((count, 3, size, size)).astype(np.float32)
    labels = (np.arange(count) % 10).astype(np.int32)
    return dataset.NumpySlicesDataset((rows, labels), shuffle=False).batch(BATCH)


def epoch(call: Callable[..., Any], data: dataset.Dataset) -> tuple[float, list[float]]:
    """Run one epoch; seconds, and the losses."""
    begun = time.perf_counter()
    found = [float(call(*batch).asnumpy()) for batch in data.create_tuple_iterator(num_epochs=1)]
    return time.perf_counter() - begun, found


def forward_epoch(step: mg.TrainStep, data: dataset.Dataset) -> float:
    """Time the loss of an epoch without its gradient, compiled before."""
    network = step.network
    epoch(network, data)
    return epoch(network, data)[0]


def row(name: str, *, short: bool) -> list[object]:
    """Train from the same start, plainly and replayed, in turns."""
    size, batches = (32, 2) if short else (SIZE, BATCHES)
    data = images(size, batches)
    plain, step = step_of(TRAINED[name], short), step_of(TRAINED[name], short)
    begun = time.perf_counter()
    replay = mg.replay_frozen(step, data, augmented=False)
    build = time.perf_counter() - begun
    rounds = [(epoch(plain, data), epoch(replay, data)) for _ in range(1 if short else EPOCHS)]
    counted([r[1][1] for r in rounds], [r[0][1] for r in rounds], name=f"losses, {name} trained")
    counted(replay.misses, 0, name="batches computed again")
    own = step.inner.phase
    step.inner.phase = f"{own}.msgrad.replay"  # the graph that a replay runs
    left = operators(step.inner)["Conv2D"]
    step.inner.phase = own
    counted(left < operators(plain.inner)["Conv2D"], True, name="fewer convolutions")
    weights = {p.name: p.asnumpy().tobytes() for p in plain.get_parameters()}
    unlike = [p.name for p in step.get_parameters() if weights[p.name] != p.asnumpy().tobytes()]
    counted(unlike, [], name=f"weights and state of other bits, {name} trained")
    cells: list[object] = [name, left, f"{replay.bytes / 2**20:.2f}", "equal"]
    if short:
        replay.close()
        return cells
    # the first epochs compile
    usual = statistics.median(r[0][0] for r in rounds[1:])
    fast = statistics.median(r[1][0] for r in rounds[1:])
    replay.close()
    forward = forward_epoch(plain, data)
    # once built, the graphs of the build are there; what a long epoch pays is the second pass
    again = mg.replay_frozen(step_of(TRAINED[name], short), data, augmented=False)
    begun = time.perf_counter()
    again.rebuild()
    fill = time.perf_counter() - begun
    again.close()
    saved = usual - fast
    return [
        *cells,
        f"{usual / fast:.1f}",
        f"{fill / forward:.2f}",
        f"{build:.1f}",
        f"{build / saved:.1f}",
    ]


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    headers = ["trained", "convolutions left", "kept, MiB", "losses and weights"]
    if not short:
        headers += ["plain epoch / replayed", "filling, in forward epochs"]
        headers += [
            "build with all its compiles, s",
            f"epochs of {BATCHES} batches that pay for it",
        ]
    table(headers, (row(name, short=short) for name in TRAINED))


if __name__ == "__main__":
    main(short=is_short(__doc__))
