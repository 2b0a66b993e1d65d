"""Rollback: everything that real steps touched is put back to the byte."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad.network._snapshot import MovementRow, compare_arrays
from msgrad.network._tree import every_cell
from msgrad.network._values import bits, copy_of, write


class Rollback:
    """Copies of all parameters and buffers under some cells.

    One copy in host memory, as large as the weights and the optimizer state.
    """

    def __init__(self, cells: Iterable[nn.Cell]) -> None:
        parts = {id(part): part for cell in cells for part in every_cell(cell)}.values()
        self._kept = {id(v): (v, copy_of(v)) for part in parts for v in _values_of(part)}

    def restore(self) -> None:
        """Write everything back that has other bits now."""
        for value, before in self._kept.values():
            if _differs(before, copy_of(value)):
                put(value, before)

    def knows(self, value: Tensor) -> bool:
        """Say whether there is a copy of this tensor."""
        return id(value) in self._kept

    def movement_of(self, value: Tensor, name: str) -> MovementRow:
        """Compare a tensor with what it was."""
        return compare_arrays(name, self._kept[id(value)][1], copy_of(value))

    def has_moved(self, value: Tensor) -> bool:
        """Say whether a tensor has other bits than it had."""
        return _differs(self._kept[id(value)][1], copy_of(value))


@contextmanager
def rolled_back(cells: Iterable[nn.Cell]) -> Iterator[Rollback]:
    """Keep what a block changes for the block only, whatever ends it."""
    kept = Rollback(cells)
    try:
        yield kept
    finally:
        kept.restore()


def put(value: Tensor, before: np.ndarray) -> None:
    """Write values into a parameter or a buffer, in place."""
    if isinstance(value, Parameter):
        write(value, before)
    else:
        value.assign_value(Tensor(before, value.dtype))


def _differs(before: np.ndarray, after: np.ndarray) -> bool:
    return before.shape != after.shape or not np.array_equal(bits(before), bits(after))


def _values_of(cell: nn.Cell) -> Iterator[Tensor]:
    """List the parameters and buffers of a cell, those in plain lists and the hidden ones too."""
    own = vars(cell)
    yield from (p for p in own["_params"].values() if p is not None)
    yield from (b for b in (own.get("_buffers") or {}).values() if b is not None)
    for value in own.values():
        yield from _parameters_in(value)


def _parameters_in(value: Any) -> Sequence[Parameter]:
    if isinstance(value, Parameter):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, Parameter)]
    return []


@contextmanager
def seeds_kept() -> Iterator[None]:
    """Put the random numbers of Python, NumPy and MindSpore back to where they were."""
    seeds = random.getstate(), np.random.get_state(), ms.get_rng_state()
    try:
        yield
    finally:
        random.setstate(seeds[0])
        np.random.set_state(seeds[1])
        ms.set_rng_state(seeds[2])
