"""One backbone that learns the digits 0 to 4, then a second head on it that learns 5 to 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

from digits import digits_dataset, load_digits

if TYPE_CHECKING:
    from msgrad.runs import Config

CLASSES = 5
FIRST = {"low": 0, "high": 5}  # the digit of class 0, for each head


def block(inputs: int, outputs: int, stride: int = 1) -> nn.SequentialCell:
    """Return a convolution with its norm."""
    return nn.SequentialCell(
        nn.Conv2d(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class TwoHeads(nn.Cell):
    """A backbone of three blocks, and a head for each half of the digits.

    A checkpoint of the first run fits the second exactly: nothing is renamed or left out.

    Args:
        digits: The half that is read: ``"low"``, 0 to 4, or ``"high"``, 5 to 9.

    Inputs:
        - **image** (Tensor) - ``(N, 1, 8, 8)``, float32, ink in [0, 1].

    Outputs:
        Tensor, the scores of the five digits, ``(N, 5)``, float32.
    """

    def __init__(self, digits: str) -> None:
        super().__init__()
        self.digits = digits
        self.backbone = nn.SequentialCell(block(1, 8), block(8, 16, 2), block(16, 16))
        self.flatten = nn.Flatten()
        self.low = nn.Dense(16 * 4 * 4, CLASSES)
        self.high = nn.Dense(16 * 4 * 4, CLASSES)

    def construct(self, image: Tensor) -> Tensor:
        """Score the digits of a batch of images."""
        features = self.flatten(self.backbone(image))
        return self.low(features) if self.digits == "low" else self.high(features)


# --- the task: what a config with `task: ../tasks/transfer.py` trains

TASK_ARGS = {"digits": "low"}


def network(config: Config) -> TwoHeads:
    """Return a network with its first weights."""
    return TwoHeads(config.task_args["digits"])


def loss() -> nn.Cell:
    """Return the loss of the scores and the labels."""
    return nn.CrossEntropyLoss()


def half(part: tuple[np.ndarray, np.ndarray], digits: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of one half of the digits, labelled from 0."""
    images, labels = part
    first = FIRST[digits]
    own = (labels >= first) & (labels < first + CLASSES)
    return images[own], labels[own] - first


def datasets(config: Config) -> tuple[ds.Dataset, ds.Dataset]:
    """Return the batches to train on, and those held out, of the digits that are read."""
    train, held_out = (half(part, config.task_args["digits"]) for part in load_digits())
    return (
        digits_dataset(*train, config.batch_size, shuffle=True, **config.shard),
        digits_dataset(*held_out, len(held_out[1]), shuffle=False),
    )


def evaluate(net: TwoHeads, dataset: ds.Dataset) -> dict[str, float]:
    """Return how many digits are read rightly, and by the first head those that it learnt."""
    figures = {"accuracy": _accuracy(net, dataset)}
    if net.digits == "high":
        _, held_out = load_digits()
        images, labels = map(Tensor, half(held_out, "low"))
        scores = net.low(net.flatten(net.backbone(images)))
        figures["accuracy_0_to_4"] = _fraction(scores, labels)
    return figures


def _accuracy(net: nn.Cell, dataset: ds.Dataset) -> float:
    rows = [(net(image), label) for image, label in dataset.create_tuple_iterator(num_epochs=1)]
    scores, labels = (ops.cat([row[part] for row in rows]) for part in (0, 1))
    return _fraction(scores, labels)


def _fraction(scores: Tensor, labels: Tensor) -> float:
    return float((scores.argmax(axis=1) == labels).astype(ms.float32).mean().asnumpy())


def inputs(config: Config) -> tuple[Tensor, Tensor]:
    """Return one batch without a file."""
    rows = config.batch_size
    return ops.zeros((rows, 1, 8, 8)), ops.zeros(rows, ms.int32)
