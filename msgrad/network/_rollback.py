"""Rollback: everything that real steps touched is put back to the byte."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_not
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad.network._held import held_by
from msgrad.network._snapshot import MovementRow, compare_arrays
from msgrad.network._tree import every_cell
from msgrad.network._values import bits, copy_of, write


class Rollback:
    """Copies of all parameters and buffers under some cells, and of what users' objects hold.

    One copy in host memory, as large as the weights and the optimizer state.
    """

    def __init__(self, cells: Iterable[nn.Cell], function: object = None) -> None:
        parts = {id(part): part for cell in cells for part in every_cell(cell)}
        held = held_by([function, *parts.values()])
        parts.update((id(p), p) for cell in held.cells for p in every_cell(cell))
        values = [v for part in parts.values() for v in _values_of(part)]
        self._kept = {id(v): (v, copy_of(v)) for v in (*values, *held.values)}
        self._before = [(own, _copy(own), but) for own, but in held.contents]

    def restore(self) -> None:
        """Write everything back that has other bits now, or that is another object."""
        for own, before, but in self._before:
            _put_back(own, before, but)
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
def rolled_back(cells: Iterable[nn.Cell], function: object = None) -> Iterator[Rollback]:
    """Keep what a block changes for the block only, whatever ends it.

    Args:
        cells: What the block may change.
        function: A function whose names lead to more of it, such as an object that sums gradients.
    """
    kept = Rollback(cells, function)
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


def _copy(own: dict[Any, Any] | list[Any]) -> dict[Any, Any] | list[Any]:
    return dict(own) if isinstance(own, dict) else list(own)


def _put_back(own: Any, before: Any, but: Collection[str]) -> None:
    """Fill a dict or list again as it was, where it is not."""
    if isinstance(own, list):
        if len(own) != len(before) or any(map(is_not, own, before)):
            own[:] = before
        return
    for key in own.keys() - before.keys() - set(but):
        del own[key]
    own.update({k: v for k, v in before.items() if k not in but and own.get(k, own) is not v})


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
