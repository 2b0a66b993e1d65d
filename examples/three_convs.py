"""The network of the original experiment, and one training step on ones."""

from __future__ import annotations

from mindspore import Tensor, nn, ops

import msgrad as mg


class ThreeConvs(nn.Cell):
    """Three convolutions in a row; the first one has no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 4, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 2, 2, pad_mode="valid", has_bias=True)
        self.conv3 = nn.Conv2d(2, 6, 2, pad_mode="valid", has_bias=True)

    def construct(self, x: Tensor) -> Tensor:
        return self.conv3(self.conv2(self.conv1(x)))


def train_on_ones(net: nn.Cell, steps: int = 3) -> None:
    """Pull the output for an image of ones to zero, with momentum and weight decay."""
    step = mg.TrainStep(
        net, lambda p: nn.Momentum(p, 0.01, 0.9, weight_decay=0.1), nn.MSELoss()
    ).set_train()
    image, target = ops.ones((1, 1, 32, 32)), ops.zeros((1, 6, 27, 27))
    for _ in range(steps):
        step(image, target)
