"""A dry run: a frozen weight and a trained one, both sharded over the cards; the strategy file.

python train_sharded.py true|use_device
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import ParallelMode, Parameter, Tensor, nn, ops

import msgrad as mg
from surroundings import RESULT

STRATEGY = Path("strategy.ckpt")


class Sharded(nn.Cell):
    """Two products of matrices whose weights lie on several cards, and the sum as the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ops.MatMul().shard(((2, 1), (1, 4)))
        self.second = ops.MatMul().shard(((2, 4), (4, 1)))
        self.frozen = Parameter(Tensor(np.ones((16, 32), np.float32)), name="frozen")
        self.trained = Parameter(Tensor(np.ones((32, 16), np.float32)), name="trained")
        self.total = ops.ReduceSum()

    def construct(self, x: Tensor) -> Tensor:
        """Return the loss."""
        return self.total(self.second(self.first(x, self.frozen), self.trained))


def main(only_trainable: str) -> None:
    """Compile a step and write which weights the strategy file names."""
    mg.use_device("Ascend", distributed=True)
    ms.set_auto_parallel_context(
        parallel_mode=ParallelMode.SEMI_AUTO_PARALLEL,
        strategy_ckpt_config={"save_file": str(STRATEGY.resolve())},
    )
    if only_trainable == "true":
        # MindSpore's default
        ms.set_auto_parallel_context(strategy_ckpt_config={"only_trainable_params": True})
    net = Sharded()
    mg.freeze(net, "frozen")
    step = mg.TrainStep(net, lambda p: nn.Momentum(p, 0.1, 0.9), unreached="allow").set_train()
    step(Tensor(np.ones((16, 16), np.float32)))
    written = STRATEGY.read_bytes()
    named = [name for name in ("frozen", "trained") if f"MatMul_{name}".encode() in written]
    Path(RESULT).write_text(json.dumps(named), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
