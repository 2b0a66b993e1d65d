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
net = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh(), nn.Dense(4, 4, weight_init="zeros"))
plain = net(ops.ones((1, 4)))
with tempfile.TemporaryDirectory() as folder:
    checkpoint = str(Path(folder, "plain.ckpt"))
    ms.save_checkpoint(net, checkpoint)
    print("wrapped:", mg.wrap(net, "2", wrapper=Skip))
    print("names:", [p.name for p in net.get_parameters()])
    print("not loaded:", ms.load_param_into_net(net, ms.load_checkpoint(checkpoint)))

skipped = net(ops.ones((1, 4)))
print("before the skip:", plain, "behind it:", skipped)
print("unwrapped:", mg.unwrap(net), "as before:", bool((net(ops.ones((1, 4))) == plain).all()))
