"""A dry run: one step of a parallel mode, by MindSpore or by a TrainStep; what it compiled to.

python train_parallel.py MODE FROZEN hand|step
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell  # what Model takes for pipelines
from mindspore.parallel.auto_parallel import AutoParallel

import msgrad as mg
from graphs import graph_files, read_graphs
from surroundings import GRAPHS, RESULT

COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Send", "Receive")
ROWS = Tensor(np.ones((16, 16), np.float32))


class Layers(nn.Cell):
    """Ten layers, so that eight ranks of an optimizer in parallel have one each; and the loss."""

    def __init__(self, count: int, *, pipeline: bool = False, sharded: bool = False) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(*[nn.Dense(16, 16) for _ in range(count)])
        for number, layer in enumerate(self.layers):
            if pipeline:
                layer.pipeline_stage = number * 2 // count
            if sharded:
                layer.matmul.shard(((2, 1), (4, 1)) if number % 2 else ((2, 4), (1, 4)))

    def construct(self, x: Tensor) -> Tensor:
        """Return the mean of the squared output."""
        return ops.square(self.layers(x)).mean()


class Clipped(nn.TrainOneStepCell):
    """Clips as TrainStep does."""

    def construct(self, x: Tensor) -> Tensor:
        """Do one step."""
        loss = self.network(x)
        grads = self.grad(self.network, self.weights)(x, ops.ones_like(loss))
        grads = ops.clip_by_global_norm(self.grad_reducer(grads), 1.0)
        return ops.depend(loss, self.optimizer(grads))


def adam(parameters: list[Parameter]) -> nn.Cell:
    """Return an optimizer with two slots for each weight."""
    return nn.AdamWeightDecay(parameters, 0.01)


def around(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    """Return a train cell under the class that replaces the parallel context."""
    return AutoParallel(nn.TrainOneStepCell(network, optimizer), parallel_mode="semi_auto")


def prepare(mode: str) -> tuple[nn.Cell, Callable[[nn.Cell, nn.Cell], nn.Cell], nn.Cell]:
    """Set the mode; return the loss network, its train cell by hand, and what holds the layers."""
    context, cell = {}, nn.TrainOneStepCell
    if mode != "data":
        context["parallel_mode"] = "semi_auto_parallel"
    if mode in ("data", "optimizer"):
        config = {"parallel_optimizer_threshold": 0}
        context |= {"enable_parallel_optimizer": True, "parallel_optimizer_config": config}
    if mode in ("optimizer", "pipeline"):
        context["dataset_strategy"] = "data_parallel"
    if mode == "pipeline":
        context["pipeline_stages"], cell = 2, _TrainGradAccuStepCell
    if mode == "class":
        context, cell = {"parallel_mode": "stand_alone"}, around
    ms.set_auto_parallel_context(**context)
    net = Layers(10, pipeline=mode == "pipeline", sharded=mode in ("tensor", "clip", "class"))
    if mode == "clip":
        cell = Clipped
    return (nn.PipelineCell(net, 4) if mode == "pipeline" else net), cell, net


def make(mode: str, frozen: str, way: str) -> tuple[nn.Cell, nn.Cell]:
    """Return the step, and the network whose layers it has frozen."""
    loss, cell, net = prepare(mode)
    if way == "hand":
        frozen_names = mg.select(net, frozen).names
        for parameter in net.get_parameters():
            parameter.requires_grad = parameter.name not in frozen_names
        return cell(loss, adam(net.trainable_params())).set_train(), net
    mg.freeze(net, frozen)
    more: dict[str, Any] = {"clip_norm": 1.0} if mode == "clip" else {"train_cell": cell}
    looks = "freeze" if mode == "data" else "allow"
    return mg.TrainStep(loss, adam, unreached=looks, **more).set_train(), net


def main(mode: str, frozen: str, way: str) -> None:
    """Compile a step and write its collectives, kernels and memory, and what is refused after."""
    mg.use_device("Ascend", distributed=True)
    step, net = make(mode, frozen, way)
    if isinstance(step, mg.TrainStep):
        step.prepare(ROWS)
    before = len(graph_files(Path(GRAPHS)))
    ms.runtime.reset_peak_memory_stats()
    step(ROWS)
    peak = ms.runtime.max_memory_allocated()
    graph = read_graphs(graph_files(Path(GRAPHS))[before:])
    found = {
        "collectives": {name: graph.operators[name] for name in COLLECTIVES},
        "kernels": graph.kernels,
        "written": sorted(n for n in graph.written if n.startswith(("layers", "adam", "accu"))),
        "peak": peak,
        "refused": [],
    }
    if isinstance(step, mg.TrainStep):
        found["refused"] = [_refusal(step.save, "save.ckpt")]
        mg.unfreeze(net, frozen)
        found["refused"].append(_refusal(step, ROWS))
    Path(RESULT).write_text(json.dumps(found), encoding="utf-8")


def _refusal(call: Callable[..., object], *inputs: object) -> str:
    try:
        call(*inputs)
    except mg.MsgradError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
