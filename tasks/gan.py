"""A generator of digits and its discriminator: two steps on one network.

The losses are those of X. Mao et al. (2017), Least Squares Generative Adversarial Networks,
arXiv:1611.04076: that of a generator which fools nobody is 1, and does not grow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn, ops

from digits import load_digits

if TYPE_CHECKING:
    from msgrad.runs import Config

NOISE = 16
PIXELS = 64


class Adversaries(nn.Cell):
    """A generator and a discriminator of images of 8×8 pixels.

    Inputs:
        - **noise** (Tensor) - ``(N, 16)``, float32.

    Outputs:
        Tensor, generated images, ``(N, 64)``, float32, ink in [0, 1].
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.SequentialCell(
            nn.Dense(NOISE, 64), nn.ReLU(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, PIXELS)
        )
        self.discriminator = nn.SequentialCell(
            nn.Dense(PIXELS, 64), nn.LeakyReLU(), nn.Dense(64, 32), nn.LeakyReLU(), nn.Dense(32, 1)
        )

    def construct(self, noise: Tensor) -> Tensor:
        """Generate images."""
        return ops.sigmoid(self.generator(noise))


# --- the task: what a config with `task: ../tasks/gan.py` trains


def network(config: Config) -> Adversaries:
    """Return both networks in one, with their first weights."""
    return Adversaries()


def discriminator_loss(net: Adversaries) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what the discriminator lessens: it is to score images 1 and generated ones 0."""

    def real_against_fake(image: Tensor, noise: Tensor) -> Tensor:
        real, fake = net.discriminator(image), net.discriminator(net(noise))
        return ((real - 1) ** 2).mean() + (fake**2).mean()

    return real_against_fake


def generator_loss(net: Adversaries) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what the generator lessens: being told apart, and another mean image than the real.

    The second term needs no discriminator. It alone is met by a generator that makes one blurred
    image of any noise.
    """

    def fool_and_match(image: Tensor, noise: Tensor) -> Tensor:
        fake = net(noise)
        fooling = ((net.discriminator(fake) - 1) ** 2).mean()
        return fooling + PIXELS * ((fake.mean(0) - image.mean(0)) ** 2).mean()

    return fool_and_match


def datasets(config: Config) -> tuple[ds.Dataset, ds.Dataset]:
    """Return batches of images and noise to train on, and those to judge the generator by."""
    (train, _), (held_out, _) = load_digits()
    return (
        _with_noise(train, config, shuffle=True).batch(config.batch_size, drop_remainder=True),
        _with_noise(held_out, config, shuffle=False).batch(len(held_out)),
    )


def _with_noise(images: np.ndarray, config: Config, *, shuffle: bool) -> ds.Dataset:
    shard = config.shard if shuffle else {}
    numbers = np.random.RandomState(config.seed + shard.get("shard_id", 0))

    def add_noise(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return image.reshape(PIXELS), numbers.standard_normal(NOISE).astype(np.float32)

    rows = ds.NumpySlicesDataset(images, ["image"], shuffle=shuffle, **shard)
    return rows.map(add_noise, "image", ["image", "noise"], num_parallel_workers=1)


def evaluate(net: Adversaries, dataset: ds.Dataset) -> dict[str, float]:
    """Judge the generated images.

    Returns:
        ``fooled``, the fraction of them that the discriminator takes for real; ``variety``, their
        standard deviation over the noise as a fraction of that of real images; ``distance``, from
        each to the nearest real image, as a fraction of what real ones have among each other.
    """
    image, noise = next(dataset.create_tuple_iterator(num_epochs=1))
    fake = net(noise)
    fooled = (net.discriminator(fake) > 0.5).astype(ms.float32).mean()
    real, made = image.asnumpy(), fake.asnumpy()
    return {
        "fooled": float(fooled.asnumpy()),
        "variety": float(made.std(0).mean() / real.std(0).mean()),
        "distance": _nearest(made, real) / _nearest(real, real),
    }


def _nearest(some: np.ndarray, others: np.ndarray) -> float:
    """Return the mean distance of each to the nearest other, itself left out."""
    distances = np.linalg.norm(some[:, None] - others[None], axis=2)
    if some is others:
        np.fill_diagonal(distances, np.inf)
    return float(distances.min(1).mean())


def inputs(config: Config) -> tuple[Tensor, Tensor]:
    """Return one batch without a file."""
    rows = config.batch_size
    return ops.zeros((rows, PIXELS)), ops.zeros((rows, NOISE))
