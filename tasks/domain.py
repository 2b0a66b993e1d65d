"""Digits with labels, and others without: a network that reads both, by gradient reversal.

The other domain is the same writing on speckled paper. Its labels judge the run and never train it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

from digits import HELD_OUT, load_digits

if TYPE_CHECKING:
    from msgrad.runs import Config

SPECKLE = 0.7  # the most ink that the paper has in a pixel, as a fraction of full ink


class TwoDomains(nn.Cell):
    """Features, a reader of digits on them, and behind a gate a judge of the domain.

    The gate does nothing. A rule of the config reverses the gradient there: the judge learns to
    tell the domains apart, the features learn to make it fail.

    Inputs:
        - **image** (Tensor) - ``(N, 1, 8, 8)``, float32, ink in [0, 1].

    Outputs:
        Tensor, the scores of the ten digits, ``(N, 10)``, float32.

    References:
        Y. Ganin, V. Lempitsky (2015). Unsupervised Domain Adaptation by Backpropagation.
        arXiv:1409.7495.
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dense(16 * 4 * 4, 64),
            nn.ReLU(),
        )
        self.digit = nn.Dense(64, 10)
        self.gate = nn.Identity()
        self.judge = nn.SequentialCell(nn.Dense(64, 32), nn.ReLU(), nn.Dense(32, 1))

    def construct(self, image: Tensor) -> Tensor:
        """Score the digits of a batch of images."""
        return self.digit(self.features(image))

    def domain(self, image: Tensor) -> Tensor:
        """Score how much each image seems to be of the other domain, above 0 if it does."""
        return self.judge(self.gate(self.features(image)))


# --- the task: what a config with `task: ../tasks/domain.py` trains


def network(config: Config) -> TwoDomains:
    """Return a network with its first weights."""
    return TwoDomains()


def both_loss(net: TwoDomains) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the loss of the digits that have labels, and of telling the domains apart."""
    read, tell = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss()

    def digits_and_domains(image: Tensor, label: Tensor, other: Tensor) -> Tensor:
        own, foreign = net.domain(image), net.domain(other)
        apart = tell(own, ops.zeros_like(own)) + tell(foreign, ops.ones_like(foreign))
        return read(net(image), label) + apart

    return digits_and_domains


def speckled(images: np.ndarray) -> np.ndarray:
    """Return images as they would be on speckled paper: always the same."""
    specks = np.random.RandomState(3).uniform(0, SPECKLE, images.shape)
    return np.clip(images + specks, 0, 1).astype(np.float32)


def datasets(config: Config) -> tuple[ds.Dataset, ds.Dataset]:
    """Return batches to train on, of other writing in each domain, and the speckled ones held out.

    Those held out are (image, speckled image, label).
    """
    (images, labels), (held_images, held_labels) = load_digits()
    half = len(images) // 2
    train = (images[:half], labels[:half], speckled(images[half : 2 * half]))
    held_out = (held_images, speckled(held_images), held_labels)
    rows = ds.NumpySlicesDataset(train, ["image", "label", "other"], shuffle=True, **config.shard)
    held_rows = ds.NumpySlicesDataset(held_out, ["image", "other", "label"], shuffle=False)
    return rows.batch(config.batch_size, drop_remainder=True), held_rows.batch(HELD_OUT)


def evaluate(net: TwoDomains, dataset: ds.Dataset) -> dict[str, float]:
    """Judge the network on both domains.

    Returns:
        ``accuracy`` on plain paper, ``accuracy_speckled`` on the other, and ``told_apart``, the
        fraction of all images whose domain the judge knows.
    """
    image, other, label = next(dataset.create_tuple_iterator(num_epochs=1))
    knows = ops.cat((net.domain(image) <= 0, net.domain(other) > 0))
    return {
        "accuracy": _mean(net(image).argmax(axis=1) == label),
        "accuracy_speckled": _mean(net(other).argmax(axis=1) == label),
        "told_apart": _mean(knows),
    }


def _mean(right: Tensor) -> float:
    return float(right.astype(ms.float32).mean().asnumpy())


def inputs(config: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Return one batch without a file."""
    rows = config.batch_size
    images = ops.zeros((rows, 1, 8, 8))
    return images, ops.zeros(rows, ms.int32), images
