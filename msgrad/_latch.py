"""MindSpore 2.7 in PYNATIVE_MODE: a flag counts when its parameter first has a gradient."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msgrad._errors import ConflictError


class _Total(nn.Cell):
    def __init__(self, weights: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.weights = ParameterTuple(weights)

    def construct(self) -> Tensor:
        total = Tensor(0.0, ms.float32)
        for weight in self.weights:
            total = total + ops.cast(weight.sum(), ms.float32)
        return total


def latches() -> bool:
    """Say whether MindSpore, in the present mode, keeps the first flag for ever."""
    old = tuple(int(part) for part in ms.__version__.split(".")[:2]) < (2, 8)
    return old and ms.get_context("mode") == ms.PYNATIVE_MODE


def release_latches(weights: Sequence[Parameter], wanted: Sequence[Parameter]) -> None:
    """Let each parameter have one gradient with its flag on, so that it can be unfrozen later.

    Raises:
        ConflictError: A wanted weight was latched before by a step of the user's own.
    """
    if not latches():
        return
    flags = [p.requires_grad for p in weights]
    try:
        for parameter in weights:
            parameter.requires_grad = True
        total = _Total(weights)
        total.set_grad()
        found = ops.GradOperation(get_by_list=True)(total, total.weights)()
    finally:
        for parameter, flag in zip(weights, flags, strict=True):
            parameter.requires_grad = flag
    dead = {id(p) for p, g in zip(weights, found, strict=True) if not g.asnumpy().any()}
    lost = [p.name for p in wanted if id(p) in dead]
    if lost:
        raise ConflictError(
            f"MindSpore {ms.__version__} in PYNATIVE_MODE keeps {len(lost)} parameters at a zero "
            f"gradient, since a step ran while their flag was off: {', '.join(lost[:5])}; "
            "build the TrainStep before that step, use GRAPH_MODE, or MindSpore 2.8"
        )
