"""What MindSpore's parallel modes cannot do with the stages of a step: refused before a compile."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, nn

from msgrad.backend import sharding_mode
from msgrad.errors import ArgumentError
from msgrad.network import every_cell
from msgrad.optim import HoldOptimizer


def check_stage(network: nn.Cell, weights: Sequence[Parameter]) -> None:
    """Refuse a pipeline stage with nothing to train: its ranks fail, and the others wait for them.

    Raises:
        ArgumentError: One has weights, and trains none of them.
    """
    trained = {id(p) for p in weights}
    stages: dict[int, list[Parameter]] = {}
    for cell in every_cell(network):
        number = getattr(cell, "pipeline_stage", None)
        if isinstance(number, int) and number >= 0:
            stages.setdefault(number, []).extend(cell.get_parameters())
    for number, held in stages.items() if len(stages) > 1 else ():
        if held and not any(id(p) in trained for p in held):
            raise ArgumentError(
                f"pipeline stage {number} would train none of its {len(held)} parameters, such as "
                f"{held[0].name}, and MindSpore asks for one on each stage; leave one of them "
                "trainable, or move the border between the stages (pipeline_stage)"
            )


def check_change(network: nn.Cell) -> None:
    """Refuse a second stage where weights or optimizer state are shared out over the ranks.

    Raises:
        ArgumentError: They are.
    """
    mode = sharding_mode()
    if mode is not None or any(p.sliced for p in network.get_parameters()):
        raise ArgumentError(
            f"parallel_mode {mode or 'AutoParallel'!r} shards weights and optimizer state, which a "
            "new stage cannot take over; freeze before the first step, or train in data_parallel"
        )
    if ms.get_auto_parallel_context("enable_parallel_optimizer"):
        raise ArgumentError(
            "enable_parallel_optimizer leaves each rank the optimizer state of its share of the "
            "weights, and a new stage shares them out anew; freeze before the first step, or train "
            "without it"
        )


def check_optimizer(optimizer: nn.Cell) -> None:
    """Refuse to hold parts of weights that each rank has a slice of.

    Raises:
        ArgumentError: Weights are sharded, and a `HoldOptimizer` keeps copies of whole ones.
    """
    mode = sharding_mode()
    if mode is not None and any(isinstance(c, HoldOptimizer) for c in every_cell(optimizer)):
        raise ArgumentError(
            f"parallel_mode {mode!r} shards weights, of which a HoldOptimizer keeps whole copies; "
            "freeze them before the first step instead"
        )
