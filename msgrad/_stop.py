"""Wrappers that act on the gradient alone, and the first of them: StopGradient."""

from __future__ import annotations

from typing import Any

from mindspore import nn, ops

from msgrad._errors import ArgumentError
from msgrad._wrapper import CellWrapper


class GradientWrapper(CellWrapper):
    """Does something to the gradient of all that enters, or leaves, the wrapped cell."""

    def __init__(self, cell: nn.Cell, at: str) -> None:
        super().__init__(cell)
        self._at = checked_place(at)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped cell; all values that pass keep their bits."""
        if self._at == "input":
            args, kwargs = self._each(args), self._each(kwargs)
            return self.cell(*args, **kwargs)
        return self._each(self.cell(*args, **kwargs))

    def _each(self, value: Any) -> Any:
        # One by one: given a tuple, PYNATIVE_MODE stops nothing in a tuple inside it, and a
        # `bprop` has a wrong gradient there.
        if isinstance(value, tuple):
            return tuple([self._each(item) for item in value])
        if isinstance(value, list):
            return [self._each(item) for item in value]
        if isinstance(value, dict):
            return {key: self._each(item) for key, item in value.items()}
        return self._one(value)

    def _one(self, value: Any) -> Any:
        raise NotImplementedError


class StopGradient(GradientWrapper):
    """No gradient passes: the forward values are the same bits, the gradient is zero.

    With ``at="output"`` the wrapped cell gets no gradient either, with ``at="input"`` it does, and
    only what is upstream of it gets none. A stopped weight still moves under weight decay or live
    momentum as long as an optimizer holds it: freeze it, or use ``TrainStep``.

    Args:
        cell: The cell to wrap.
        at: Where the gradient stops: ``"output"`` or ``"input"`` of the cell.

    Inputs:
        Those of the wrapped cell: tensors, tuples, lists, dicts, None, numbers, keywords.

    Outputs:
        Those of the wrapped cell; a named tuple becomes a plain one.

    Raises:
        ArgumentError: ``at`` is something else.
        ArgumentTypeError: ``cell`` is not a Cell.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> stopped = mg.StopGradient(nn.ReLU())
        >>> print(stopped(ms.Tensor([3.0])), ms.grad(stopped)(ms.Tensor([3.0])))
        [3.] [0.]
    """

    def __init__(self, cell: nn.Cell, at: str = "output") -> None:
        super().__init__(cell, at)

    def _one(self, value: Any) -> Any:
        return ops.stop_gradient(value)

    def extend_repr(self) -> str:
        """Return where the gradient stops."""
        return f"at={self._at!r}"


def checked_place(at: str) -> str:
    """Return `at`, or raise where it is no place of a cell."""
    if at not in ("output", "input"):
        raise ArgumentError(f"at {at!r} is no place of a cell; give 'output' or 'input'")
    return at
