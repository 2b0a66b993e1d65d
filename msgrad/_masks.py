"""The masks of held weights: which elements of a weight and of its optimizer state stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor
from mindspore import dtype as mstype

from msgrad._errors import ArgumentError
from msgrad._weights import copy_of, write


class Masks:
    """One mask per weight, shared by its state of the same shape; state of another has its own.

    A flag per weight says whether any of its elements is held: a step that looks at all masks to
    find that nothing is held would take as long as one that holds.

    Args:
        owned: Name of a weight and a Parameter, which is the weight or state of it; weights first.

    Examples:
        >>> from mindspore import Tensor
        >>> masks = Masks([("w", Parameter(Tensor([1.0, 2.0, 3.0]), name="w"))])
        >>> masks.set_rows("w", [0, 2], held=True)
        [0, 2]
        >>> masks.rows()["w"].tolist()
        [True, False, True]
    """

    def __init__(self, owned: Sequence[tuple[str, Parameter]]) -> None:
        self._of: dict[str, list[Parameter]] = {}
        self._flags: dict[str, Parameter] = {}
        self.each = [self._mask_of(name, value) for name, value in owned]

    def _mask_of(self, name: str, value: Parameter) -> Parameter:
        if name not in self._of:
            self._of[name] = []
            self._flags[name] = blank((), mstype.int32, f"hold_flag.{name}")
        masks = self._of[name]
        if not masks or masks[0].shape != value.shape:
            masks.append(blank(value.shape, mstype.bool_, f"hold_mask.{value.name}"))
            return masks[-1]
        return masks[0]

    def __contains__(self, name: str) -> bool:
        return name in self._of

    @property
    def parameters(self) -> list[Parameter]:
        """Every mask once."""
        return [mask for masks in self._of.values() for mask in masks]

    @property
    def flags(self) -> list[Parameter]:
        """The flag of every weight, 1 where any of its elements is held."""
        return list(self._flags.values())

    def rows(self) -> dict[str, np.ndarray]:
        """Say of each row whether it is held; weights without elements are left out."""
        found = {name: copy_of(masks[0]) for name, masks in self._of.items()}
        return {name: _by_row(mask) for name, mask in found.items() if mask.size}

    def set(self, name: str, *, held: bool) -> None:
        """Hold or release a whole weight."""
        for mask in self._of[name]:
            write(mask, np.full(mask.shape, held))
        write(self._flags[name], np.int32(held))

    def set_rows(self, name: str, rows: Any, *, held: bool) -> list[int]:
        """Hold or release some rows, and return those that are held now.

        Raises:
            ArgumentError: The rows do not exist, or there is state that has no such rows.
        """
        mask, *others = self._of[name]
        if mask.ndim == 0:
            raise ArgumentError(f"weight {name!r} is a number without rows; hold it whole")
        if others:
            raise ArgumentError(
                f"weight {name!r} {mask.shape} has optimizer state of another shape "
                f"{others[0].shape}, whose rows are not its rows; hold it whole"
            )
        value = copy_of(mask)
        value[_numbers(name, rows, len(value))] = held
        write(mask, value)
        write(self._flags[name], np.int32(value.any()))
        return numbers_of(_by_row(value))


def blank(shape: tuple[int, ...], dtype: Any, name: str) -> Parameter:
    """Return a Parameter of zeros that nothing trains."""
    return Parameter(Tensor(np.zeros(shape, np.float32), dtype), name=name, requires_grad=False)


def numbers_of(rows: np.ndarray) -> list[int]:
    """List the numbers of the rows that are True."""
    return [int(number) for number in np.flatnonzero(rows)]


def _by_row(mask: np.ndarray) -> np.ndarray:
    return mask.reshape(len(mask) if mask.ndim else 1, -1).all(axis=1)


def _numbers(name: str, rows: Any, count: int) -> np.ndarray:
    rows = rows.asnumpy() if isinstance(rows, Tensor) else rows
    try:
        numbers = np.atleast_1d(np.arange(count)[rows])
    except IndexError as error:
        raise ArgumentError(
            f"rows {rows!r} do not fit the {count} rows of {name!r}; give numbers from "
            f"{-count} to {count - 1}, a slice, or {count} booleans"
        ) from error
    if numbers.ndim != 1 or not numbers.size:
        raise ArgumentError(f"rows {rows!r} are none of the {count} rows of {name!r}; give some")
    return numbers
