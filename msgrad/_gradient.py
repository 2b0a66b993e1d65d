"""Wrappers that act on the gradient alone: stop, scale, reverse; the forward keeps its bits."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._errors import ArgumentError, ArgumentTypeError
from msgrad._select import CellPattern
from msgrad._weights import write
from msgrad._wrap import wrap
from msgrad._wrapper import CellWrapper, hide

_PLACES = ("output", "input")
_FLOATS = (
    mstype.float16,
    mstype.bfloat16,
    mstype.float32,
    mstype.complex64,
    mstype.complex128,
)


class StopGradient(CellWrapper):
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
        Those of the wrapped cell.

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
        super().__init__(cell)
        self._at = _checked_place(at)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped cell, with the stop before or behind it."""
        if self._at == "input":
            args, kwargs = ops.stop_gradient(args), ops.stop_gradient(kwargs)
            return self.cell(*args, **kwargs)
        return ops.stop_gradient(self.cell(*args, **kwargs))

    def extend_repr(self) -> str:
        """Return where the gradient stops."""
        return f"at={self._at!r}"


class _MultiplyGradient(CellWrapper):
    """The gradient that passes is multiplied by a factor that can change without compiling."""

    def __init__(self, cell: nn.Cell, factor: float, at: str) -> None:
        super().__init__(cell)
        self._at = _checked_place(at)
        hide(self, "_factor", factor, mstype.float32)
        # For gradients of float64 alone: the other types would not see more digits.
        hide(self, "_factor64", factor, mstype.float64)
        self._make_marks()

    def _make_marks(self) -> None:
        # A `bprop` may read no parameter, and a hook has a wrong second order in a graph.
        self._mark = ops.InsertGradientOf(self._multiplied)
        self._mark64 = ops.InsertGradientOf(self._multiplied64)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        # A mark is bound to the wrapper that it was made for.
        self._make_marks()

    def _set_factor(self, factor: float) -> None:
        write(self._factor, Tensor(factor, mstype.float32))
        write(self._factor64, Tensor(factor, mstype.float64))

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped cell; the values that pass are unchanged, their gradients are not."""
        if self._at == "input":
            args, kwargs = self._each(args), self._each(kwargs)
            return self.cell(*args, **kwargs)
        return self._each(self.cell(*args, **kwargs))

    def _each(self, value: Any) -> Any:
        """Mark every tensor by itself: for a tuple as a whole PYNATIVE_MODE's gradient is wrong."""
        if isinstance(value, Tensor):
            if value.dtype == mstype.float64:
                return self._mark64(value)
            return self._mark(value) if value.dtype in _FLOATS else value
        if isinstance(value, tuple):
            return tuple([self._each(item) for item in value])
        if isinstance(value, list):
            return [self._each(item) for item in value]
        if isinstance(value, dict):
            return {key: self._each(item) for key, item in value.items()}
        return value

    def _multiplied(self, gradient: Tensor) -> Tensor:
        return gradient * ops.cast(self._factor, gradient.dtype)

    def _multiplied64(self, gradient: Tensor) -> Tensor:
        return gradient * self._factor64


class ScaleGradient(_MultiplyGradient):
    """The gradient that passes is multiplied by a constant; the forward values keep their bits.

    With ``at="output"`` the gradients of the wrapped cell's own weights are scaled too, with
    ``at="input"`` only what flows on upstream. Under an optimizer that normalises gradients (Adam)
    a scaled gradient of a weight makes nearly the same step: give the weight a rate of its own.

    Args:
        cell: The cell to wrap.
        scale: Factor, finite, 0 or more; it is rounded to the type of the gradient.
        at: Where the gradient is scaled: ``"output"`` or ``"input"`` of the cell.

    Inputs:
        Those of the wrapped cell; integers and booleans pass unchanged.

    Outputs:
        Those of the wrapped cell.

    Raises:
        ArgumentError: ``scale`` is negative or not finite, or ``at`` is something else.
        ArgumentTypeError: ``cell`` is not a Cell, or ``scale`` is no number.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> scaled = mg.ScaleGradient(nn.ReLU(), scale=0.5)
        >>> print(ms.grad(scaled)(ms.Tensor([3.0])))
        [0.5]
    """

    def __init__(self, cell: nn.Cell, scale: float = 0.1, at: str = "output") -> None:
        super().__init__(cell, _checked_scale(scale, "ReverseGradient"), at)

    def set_scale(self, scale: float) -> None:
        """Change the factor, without compiling again.

        Args:
            scale: Factor, finite, 0 or more.

        Raises:
            ArgumentError: ``scale`` is negative or not finite.
            ArgumentTypeError: ``scale`` is no number.
        """
        self._set_factor(_checked_scale(scale, "ReverseGradient"))

    def extend_repr(self) -> str:
        """Return the factor and where it acts."""
        return f"scale={float(self._factor64.asnumpy())}, at={self._at!r}"


class ReverseGradient(_MultiplyGradient):
    """The gradient that passes is multiplied by a negative constant: a gradient reversal layer.

    With ``at="input"`` the wrapped cell learns as usual and what is upstream learns the opposite;
    with ``at="output"`` its own weights go the other way too.

    Args:
        cell: The cell to wrap.
        scale: The factor without its sign, finite, 0 or more.
        at: Where the gradient is reversed: ``"input"`` or ``"output"`` of the cell.

    Inputs:
        Those of the wrapped cell; integers and booleans pass unchanged.

    Outputs:
        Those of the wrapped cell.

    Raises:
        ArgumentError: ``scale`` is negative or not finite, or ``at`` is something else.
        ArgumentTypeError: ``cell`` is not a Cell, or ``scale`` is no number.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> reversed_ = mg.ReverseGradient(nn.ReLU(), scale=2.0)
        >>> print(ms.grad(reversed_)(ms.Tensor([3.0])))
        [-2.]

    References:
        Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation, 2015,
        https://arxiv.org/abs/1409.7495, equation 10.
    """

    def __init__(self, cell: nn.Cell, scale: float = 1.0, at: str = "input") -> None:
        super().__init__(cell, -_checked_scale(scale, "ScaleGradient"), at)

    def set_scale(self, scale: float) -> None:
        """Change the factor, without compiling again.

        Args:
            scale: The factor without its sign, finite, 0 or more.

        Raises:
            ArgumentError: ``scale`` is negative or not finite.
            ArgumentTypeError: ``scale`` is no number.
        """
        self._set_factor(-_checked_scale(scale, "ScaleGradient"))

    def extend_repr(self) -> str:
        """Return the factor and where it acts."""
        return f"scale={-float(self._factor64.asnumpy())}, at={self._at!r}"


def stop_gradient(net: nn.Cell, *patterns: CellPattern, at: str = "output") -> list[str]:
    """Let no gradient pass through the cells that the patterns choose, in place.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to stop at, see ``wrap``.
        at: Where the gradient stops, see ``StopGradient``.

    Returns:
        The paths of the cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: ``at`` is unknown, or a cell cannot be wrapped, see ``wrap``.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.stop_gradient(nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2)), "0")
        ['0']
    """
    _checked_place(at)
    return wrap(net, *patterns, wrapper=lambda cell: StopGradient(cell, at))


def scale_gradient(
    net: nn.Cell, *patterns: CellPattern, scale: float, at: str = "output"
) -> list[str]:
    """Multiply the gradient that passes through the cells that the patterns choose, in place.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to wrap, see ``wrap``.
        scale: Factor, finite, 0 or more.
        at: Where the gradient is scaled, see ``ScaleGradient``.

    Returns:
        The paths of the cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: ``scale`` or ``at`` is unusable, or a cell cannot be wrapped, see ``wrap``.
        ArgumentTypeError: ``scale`` is no number.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.scale_gradient(nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2)), "0", scale=0.1)
        ['0']
    """
    _checked_scale(scale, "reverse_gradient")
    _checked_place(at)
    return wrap(net, *patterns, wrapper=lambda cell: ScaleGradient(cell, scale, at))


def reverse_gradient(
    net: nn.Cell, *patterns: CellPattern, scale: float = 1.0, at: str = "input"
) -> list[str]:
    """Reverse the gradient that passes through the cells that the patterns choose, in place.

    Args:
        net: Cell to change, in place.
        *patterns: Cells to wrap, see ``wrap``.
        scale: The factor without its sign, finite, 0 or more.
        at: Where the gradient is reversed, see ``ReverseGradient``.

    Returns:
        The paths of the cells, in network order.

    Raises:
        NoMatchError: A pattern matches no cell.
        ArgumentError: ``scale`` or ``at`` is unusable, or a cell cannot be wrapped, see ``wrap``.
        ArgumentTypeError: ``scale`` is no number.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> mg.reverse_gradient(nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2)), "1")
        ['1']
    """
    _checked_scale(scale, "scale_gradient")
    _checked_place(at)
    return wrap(net, *patterns, wrapper=lambda cell: ReverseGradient(cell, scale, at))


def _checked_place(at: str) -> str:
    if at not in _PLACES:
        raise ArgumentError(f"at {at!r} is no place of a cell; give 'output' or 'input'")
    return at


def _checked_scale(scale: float, opposite: str) -> float:
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise ArgumentTypeError(f"scale {scale!r} is a {type(scale).__name__}; give a number")
    if not math.isfinite(scale):
        raise ArgumentError(f"scale {scale!r} is not finite; give a number, 0 or more")
    if scale < 0:
        raise ArgumentError(f"scale {scale!r} is negative; use {opposite} with scale={-scale!r}")
    return float(scale)
