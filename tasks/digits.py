"""Handwritten digits, the network that reads them, and the task of a config that trains it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

if TYPE_CHECKING:
    from msgrad.runs import Config

FILE = Path(__file__).resolve().parent.parent / "data" / "digits.npz"
HELD_OUT = 360
FULL_INK = 16.0


class DigitsNet(nn.Cell):
    """Three small convolutions and a head for ten digits.

    Args:
        stop_by_hand: Cut the gradient behind ``conv1`` with ``ops.stop_gradient`` in ``construct``.

    Inputs:
        - **image** (Tensor) - ``(N, 1, 8, 8)``, float32, ink in [0, 1].

    Outputs:
        Tensor, the scores of the ten digits, ``(N, 10)``, float32.
    """

    def __init__(self, stop_by_hand: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 4, pad_mode="valid", has_bias=False)
        self.conv2 = nn.Conv2d(6, 2, 2, pad_mode="valid", has_bias=True)
        self.conv3 = nn.Conv2d(2, 6, 2, pad_mode="valid", has_bias=True)
        self.act = nn.Tanh()  # behind two channels a ReLU dies for some seeds: accuracy 0.08
        self.flatten = nn.Flatten()
        self.head = nn.Dense(6 * 3 * 3, 10)
        self.stop_by_hand = stop_by_hand

    def construct(self, image: Tensor) -> Tensor:
        """Score the digits of a batch of images."""
        features = self.conv1(image)
        if self.stop_by_hand:
            features = ops.stop_gradient(features)
        features = self.act(self.conv2(self.act(features)))
        return self.head(self.flatten(self.act(self.conv3(features))))


def load_digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return images and labels to train on, and images and labels held out: always the same.

    Shuffled first: in the order of the file the last fifth is read about 0.1 worse.
    """
    with np.load(FILE) as arrays:
        image, label = arrays["image"], arrays["label"]
    order = np.random.RandomState(0).permutation(len(label))  # a stream that NumPy never changes
    image = image[order, None].astype(np.float32) / FULL_INK
    label = label[order].astype(np.int32)
    return (image[HELD_OUT:], label[HELD_OUT:]), (image[:HELD_OUT], label[:HELD_OUT])


def digits_dataset(
    images: np.ndarray, labels: np.ndarray, batch_size: int, *, shuffle: bool, **shard: Any
) -> ds.Dataset:
    """Return (image, label) batches; shuffled ones are all whole, so that one graph serves them."""
    rows = ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=shuffle, **shard)
    return rows.batch(batch_size, drop_remainder=shuffle)


# --- the task: what a config with `task: ../tasks/digits.py` trains

TASK_ARGS = {"stop_by_hand": False}  # cut the gradient in `construct`, without msgrad


def network(config: Config) -> DigitsNet:
    """Return a network with its first weights."""
    return DigitsNet(stop_by_hand=config.task_args["stop_by_hand"])


def loss() -> nn.Cell:
    """Return the loss of the scores and the labels."""
    return nn.CrossEntropyLoss()


def datasets(config: Config) -> tuple[ds.Dataset, ds.Dataset]:
    """Return the batches to train on, and those held out."""
    train, held_out = load_digits()
    return (
        digits_dataset(*train, config.batch_size, shuffle=True, **config.shard),
        digits_dataset(*held_out, HELD_OUT, shuffle=False),
    )


def inputs(config: Config) -> tuple[Tensor, Tensor]:
    """Return one batch without a file."""
    rows = config.batch_size
    return ops.zeros((rows, 1, 8, 8)), ops.zeros(rows, ms.int32)
