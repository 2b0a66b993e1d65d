"""Twelve networks of the field, small enough for a laptop, each with a place that can be edited.

`edit` stands at that place in `construct`: by hand it is a function of the tensor there; by msgrad
it is None, and a wrapper goes around the cell named in `PLACE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import random
from mindspore import Parameter, Tensor, nn, ops

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tasks"))
from resnet import ResNet

Edit = Callable[[Any], Any] | None


def unit(inputs: int, outputs: int, size: int = 3, stride: int = 1, group: int = 1) -> nn.Cell:
    """Convolution, norm, ReLU."""
    return nn.SequentialCell(
        nn.Conv2d(inputs, outputs, size, stride, group=group), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Edited(nn.Cell):
    """A first part, the edit, and the rest."""

    def __init__(self, first: nn.Cell, rest: nn.Cell, edit: Edit = None) -> None:
        super().__init__()
        self.first, self.rest = first, rest
        self.edit = edit

    def construct(self, x: Tensor) -> Tensor:
        """Run both parts."""
        y = self.first(x)
        if self.edit is not None:
            y = self.edit(y)
        return self.rest(y)


class Block(nn.Cell):
    """Two convolutions beside a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = unit(inputs, outputs, stride=stride), nn.Conv2d(outputs, outputs, 3)
        self.norm, self.relu = nn.BatchNorm2d(outputs), nn.ReLU()
        self.short = nn.Conv2d(inputs, outputs, 1, stride)

    def construct(self, x: Tensor) -> Tensor:
        """Add the branch to the shortcut."""
        return self.relu(self.norm(self.two(self.one(x))) + self.short(x))


class Pool(nn.Cell):
    """The mean over the image, and a head."""

    def __init__(self, channels: int, classes: int = 10) -> None:
        super().__init__()
        self.head = nn.Dense(channels, classes)

    def construct(self, x: Tensor) -> Tensor:
        """Score the classes."""
        return self.head(x.mean((2, 3)))


class Squeeze(nn.Cell):
    """An inverted bottleneck with squeeze and excitation, as in MobileNetV3."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.expand, self.deep = unit(channels, wide, 1), unit(wide, wide, 3, group=wide)
        self.down, self.up = nn.Dense(wide, wide // 4), nn.Dense(wide // 4, wide)
        self.act, self.gate = nn.HSwish(), nn.HSigmoid()
        self.project = nn.SequentialCell(nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels))

    def construct(self, x: Tensor) -> Tensor:
        """Scale the channels by what their means say."""
        y = self.act(self.deep(self.expand(x)))
        scale = self.gate(self.up(ops.relu(self.down(y.mean((2, 3))))))
        return x + self.project(y * scale.reshape(scale.shape[0], -1, 1, 1))


class Attention(nn.Cell):
    """A layer of a transformer with its norms in front."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Dense(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm([width]), nn.LayerNorm([width])
        self.up, self.down, self.act = (
            nn.Dense(width, 4 * width),
            nn.Dense(4 * width, width),
            nn.GELU(),
        )
        self.heads, self.part = heads, width // heads

    def split(self, x: Tensor) -> Tensor:
        """Go from (N, T, C) to (N, heads, T, C / heads)."""
        return x.reshape(x.shape[0], x.shape[1], self.heads, self.part).transpose(0, 2, 1, 3)

    def construct(self, x: Tensor) -> Tensor:
        """Attend, then think."""
        y = self.norm1(x)
        q, k, v = self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y))
        share = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) / self.part**0.5, -1)
        y = ops.matmul(share, v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = x + self.out(y)
        return x + self.down(self.act(self.up(self.norm2(x))))


class Patches(nn.Cell):
    """An image as a row of tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 4, 4)

    def construct(self, x: Tensor) -> Tensor:
        """Go from (N, 3, H, W) to (N, T, C)."""
        y = self.conv(x)
        return y.reshape(y.shape[0], y.shape[1], -1).transpose(0, 2, 1)


class Tokens(nn.Cell):
    """The mean over the tokens, and a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Dense(width, 10)

    def construct(self, x: Tensor) -> Tensor:
        """Score the classes."""
        return self.head(x.mean(1))


class Last(nn.Cell):
    """An LSTM's last output, and a head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, width, batch_first=True), nn.Dense(width, 10)

    def construct(self, x: Tensor) -> Tensor:
        """Score the classes."""
        return self.head(self.lstm(x)[0][:, -1])


class UNet(nn.Cell):
    """Down, up, and a skip between; the edit stands in the lower branch only."""

    def __init__(self, edit: Edit = None) -> None:
        super().__init__()
        self.top, self.first = unit(3, 8), unit(8, 16, stride=2)
        self.up = nn.Conv2dTranspose(16, 8, 2, 2)
        self.rest = nn.SequentialCell(unit(16, 8), Pool(8))
        self.edit = edit

    def construct(self, x: Tensor) -> Tensor:
        """Join both branches."""
        top = self.top(x)
        low = self.first(top)
        if self.edit is not None:
            low = self.edit(low)
        return self.rest(ops.concat((top, self.up(low)), 1))


class Image(nn.Cell):
    """Noise as a small image."""

    def construct(self, z: Tensor) -> Tensor:
        """Go from (N, 64) to (N, 4, 4, 4)."""
        return z.reshape(z.shape[0], 4, 4, 4)


def lenet(edit: Edit) -> nn.Cell:
    """LeNet-5."""
    first = nn.SequentialCell(nn.Conv2d(3, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2))
    conv = nn.SequentialCell(nn.Conv2d(6, 16, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2))
    dense = nn.SequentialCell(nn.Flatten(), nn.Dense(400, 120), nn.ReLU(), nn.Dense(120, 10))
    return Edited(first, nn.SequentialCell(conv, dense), edit)


def mlp(edit: Edit) -> nn.Cell:
    """Three dense layers with norm and dropout off."""
    first = nn.SequentialCell(nn.Flatten(), nn.Dense(3072, 128), nn.BatchNorm1d(128), nn.ReLU())
    return Edited(first, nn.SequentialCell(nn.Dense(128, 64), nn.ReLU(), nn.Dense(64, 10)), edit)


def resnet18(edit: Edit, width: int = 16) -> nn.Cell:
    """ResNet-18 of another width."""
    first = nn.SequentialCell(unit(3, width), Block(width, width, 1), Block(width, width, 1))
    blocks, inside = [], width
    for outside in (2 * width, 4 * width, 8 * width):
        blocks += [Block(inside, outside, 2), Block(outside, outside, 1)]
        inside = outside
    return Edited(first, nn.SequentialCell(*blocks, Pool(inside)), edit)


def resnet50(edit: Edit) -> nn.Cell:
    """ResNet-50 of width 8."""
    whole = ResNet([3, 4, 6, 3], width=8)
    first = nn.SequentialCell(whole.conv1, whole.bn1, whole.relu, whole.max_pool, whole.layer1)
    return Edited(
        first, nn.SequentialCell(whole.layer2, whole.layer3, whole.layer4, Pool(256)), edit
    )


def mobilenet(edit: Edit) -> nn.Cell:
    """MobileNetV3 in small."""
    first = nn.SequentialCell(unit(3, 16, stride=2), Squeeze(16, 32))
    return Edited(first, nn.SequentialCell(*(Squeeze(16, 48) for _ in range(4)), Pool(16)), edit)


def vit(edit: Edit) -> nn.Cell:
    """A vision transformer of four layers."""
    first = nn.SequentialCell(Patches(32), Attention(32, 4))
    rest = nn.SequentialCell(*(Attention(32, 4) for _ in range(3)), Tokens(32))
    return Edited(first, rest, edit)


def bert(edit: Edit) -> nn.Cell:
    """Twelve layers as in BERT."""
    first = nn.SequentialCell(nn.Embedding(100, 32), Attention(32, 4))
    rest = nn.SequentialCell(*(Attention(32, 4) for _ in range(11)), Tokens(32))
    return Edited(first, rest, edit)


def lstm(edit: Edit) -> nn.Cell:
    """An LSTM over embedded tokens."""
    return Edited(nn.SequentialCell(nn.Embedding(100, 16), nn.Dense(16, 16)), Last(16), edit)


def autoencoder(edit: Edit) -> nn.Cell:
    """An image through ten numbers and back to its mean."""
    first = nn.SequentialCell(nn.Flatten(), nn.Dense(3072, 64), nn.Tanh(), nn.Dense(64, 10))
    return Edited(first, nn.SequentialCell(nn.Dense(10, 64), nn.Tanh(), nn.Dense(64, 10)), edit)


def generator(edit: Edit) -> nn.Cell:
    """The generator of a DCGAN, and a discriminator on top."""
    first = nn.SequentialCell(Image(), nn.Conv2dTranspose(4, 8, 2, 2), nn.BatchNorm2d(8), nn.ReLU())
    rest = nn.SequentialCell(nn.Conv2dTranspose(8, 3, 2, 2), nn.Tanh(), unit(3, 8, 3, 2), Pool(8))
    return Edited(first, rest, edit)


def discriminator(edit: Edit) -> nn.Cell:
    """The discriminator of a DCGAN."""
    leaky = nn.LeakyReLU(0.2)
    first = nn.SequentialCell(nn.Conv2d(3, 8, 4, 2), leaky)
    rest = nn.SequentialCell(nn.Conv2d(8, 16, 4, 2), nn.BatchNorm2d(16), leaky, Pool(16))
    return Edited(first, rest, edit)


IMAGE, NOISE = random(4, 3, 32, 32), random(4, 64)
WORDS = Tensor(np.random.default_rng(1).integers(0, 100, (4, 12)).astype(np.int32))
NETS: dict[str, tuple[Callable[[Edit], nn.Cell], Tensor]] = {
    "LeNet-5": (lenet, IMAGE),
    "MLP": (mlp, IMAGE),
    "ResNet-18": (resnet18, IMAGE),
    "ResNet-50": (resnet50, IMAGE),
    "MobileNetV3": (mobilenet, IMAGE),
    "ViT": (vit, IMAGE),
    "BERT, 12 layers": (bert, WORDS),
    "LSTM": (lstm, WORDS),
    "U-Net": (UNet, IMAGE),
    "autoencoder": (autoencoder, IMAGE),
    "DCGAN generator": (generator, NOISE),
    "DCGAN discriminator": (discriminator, IMAGE),
}
LABELS = Tensor(np.arange(4, dtype=np.int32))


def adam(parameters: list[Parameter]) -> nn.Adam:
    """Make the optimizer of both sides of a comparison."""
    return nn.Adam(parameters, 1e-3)


def momentum(parameters: list[Parameter]) -> nn.Momentum:
    """Make an optimizer that keeps less."""
    return nn.Momentum(parameters, 1e-3, 0.9)


def hold_by_hand(cell: nn.Cell) -> None:
    """Do what a freeze does before the optimizer is made: flags, norms that keep statistics."""
    for parameter in cell.get_parameters():
        parameter.requires_grad = False
    for _, part in cell.cells_and_names():
        if hasattr(part, "use_batch_statistics"):
            part.use_batch_statistics = False


def train_by_hand(net: nn.Cell, weights: list[Parameter] | None = None) -> nn.Cell:
    """Make MindSpore's own train cell, over what is trainable now or over these weights."""
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    return nn.TrainOneStepCell(
        loss, adam(net.trainable_params() if weights is None else weights)
    ).set_train()


def resnet18_or_small(short: bool, width: int) -> nn.Cell:
    """Make a ResNet-18 of a width, or where only to count a LeNet-5."""
    return lenet(None) if short else resnet18(None, width)


def resnet50_or_small(short: bool) -> ResNet:
    """Make a ResNet-50, or where only to count a small one."""
    return ResNet([1, 1, 1, 1], width=2) if short else ResNet([3, 4, 6, 3])
