"""A wrapper of one's own, a skip around a layer: no name and no checkpoint key changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import mindspore as ms
from mindspore import Tensor, nn, ops

import msgrad as mg


class Skip(mg.CellWrapper):
    """Adds what goes into the wrapped cell to what comes out of it."""

    def construct(self, x: Tensor) -> Tensor:
        return x + self.cell(x)


mg.use_device()
x = ops.ones((1, 2))
ones = {"weight_init": "ones", "bias_init": "zeros"}
net = nn.SequentialCell(nn.Dense(2, 2, **ones), nn.ReLU(), nn.Dense(2, 2, **ones))
with tempfile.TemporaryDirectory() as folder:
    checkpoint = str(Path(folder, "plain.ckpt"))
    ms.save_checkpoint(net, checkpoint)
    print("plain:", net(x))
    print("wrapped:", mg.wrap(net, "2", wrapper=Skip))
    print("with the skip:", net(x))
    print("names:", [p.name for p in net.get_parameters()])
    print("not loaded:", ms.load_param_into_net(net, ms.load_checkpoint(checkpoint)))
print("unwrapped:", mg.unwrap(net))
print("without it:", net(x))
