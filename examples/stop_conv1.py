"""No gradient passes conv1: printed from the graph at each step, its weights are the same bits."""

from __future__ import annotations

import mindspore as ms

import msgrad as mg
from three_convs import ThreeConvs, train_on_ones

mg.use_device()
ms.set_seed(1)
net = ThreeConvs()
mg.wrap(net, "conv1", wrapper=mg.PrintWeights)
mg.stop_gradient(net, "conv1")
before = mg.Snapshot(net)
train_on_ones(net)
print(before.compare())
