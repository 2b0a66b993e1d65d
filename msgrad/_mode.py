"""How graphs run: in which mode, whether they compute at all, whether they shard weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import mindspore as ms

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
