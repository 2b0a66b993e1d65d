"""A rehearsal: steps are run for real, and everything that they touched is put back to the byte."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad._behaviour import asked_to_train
from msgrad._cells import every_cell
from msgrad._snapshot import MovementRow, compare_arrays
from msgrad._weights import bits, copy_of, write


class Rehearsal:
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
def rehearsal(cells: Iterable[nn.Cell]) -> Iterator[Rehearsal]:
    """Keep what a block changes for the block only, whatever ends it."""
    kept = Rehearsal(cells)
    try:
        yield kept
    finally:
        kept.restore()


@contextmanager
def in_training(cell: nn.Cell) -> Iterator[None]:
    """Put a cell in training as `Model.train` does, and each of its cells back as it was."""
    modes = [(part, asked_to_train(part)) for part in every_cell(cell)]
    phase = cell.phase
    cell.set_train()
    cell.phase = "train"
    try:
        yield
    finally:
        for part, mode in modes:
            part.add_flags(training=mode)
        cell.phase = phase


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
