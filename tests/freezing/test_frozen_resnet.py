"""A residual network with BatchNorm and dropout, its first three stages frozen."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from tests.nets.behaviour_nets import Features, ResNet, bits, moved

pytestmark = [pytest.mark.usefixtures("mode"), pytest.mark.slow]
FROZEN = ("conv1", "bn1", "layer1", "layer2", "layer3")


def sgd(parameters: list[Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.05, momentum=0.9, weight_decay=0.01)


def test_twenty_steps_leave_three_stages_and_their_output_as_they_were():
    rng = np.random.default_rng(0)
    x = Tensor(rng.normal(size=(8, 3, 8, 8)).astype(np.float32))
    label = Tensor(rng.integers(0, 3, 8).astype(np.int32))
    net = ResNet()
    # statistics that no single batch has
    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.BatchNorm2d):
            cell.moving_mean.set_data(Tensor(rng.normal(size=cell.num_features).astype(np.float32)))
    # what plain MindSpore gives in evaluation
    expected = Features(copy.deepcopy(net).set_train(False))(x).asnumpy()

    mg.freeze(net, *FROZEN)
    step = mg.TrainStep(net, sgd, nn.CrossEntropyLoss())
    step.set_train()
    before = bits(net)
    losses = [step(x, label).asnumpy() for _ in range(20)]

    trained = {name for name in before if not name.startswith(FROZEN)}
    assert moved(net, before) == trained
    assert set(step.trainable) == {name for name in trained if "moving" not in name}
    assert np.mean(losses[-5:]) < np.mean(losses[:5])
    training = Features(net)(x).asnumpy()
    evaluating = Features(net.set_train(False))(x).asnumpy()
    assert training.tobytes() == evaluating.tobytes() == expected.tobytes()
