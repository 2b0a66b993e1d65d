"""How graphs run: in which mode, whether they compute at all, whether they shard weights."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msgrad.errors import ConflictError

DRY_RUN = "MS_SIMULATION_LEVEL"


def computes() -> bool:
    """Say whether graphs compute: in a dry run for Ascend all that is read back is zeros."""
    return not os.environ.get(DRY_RUN)


@contextmanager
def running_in(mode: int) -> Iterator[None]:
    """Set GRAPH_MODE or PYNATIVE_MODE, and go back to what was set before.

    A cell called in GRAPH_MODE is compiled. `ms.jit` in PYNATIVE_MODE is no substitute: on
    MindSpore 2.7.0 it writes zeros where a function in it is a `functools.partial` or an object
    with `__call__`.
    """
    before = ms.get_context("mode")
    if before == mode:
        yield
        return
    ms.set_context(mode=mode)
    try:
        yield
    finally:
        ms.set_context(mode=before)


def sharding_mode() -> str | None:
    """Return the parallel mode, where it is one that shards weights while a graph is compiled."""
    mode = str(ms.get_auto_parallel_context("parallel_mode"))
    return mode if mode in ("semi_auto_parallel", "auto_parallel") else None


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
