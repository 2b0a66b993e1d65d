"""Wrappers that multiply the gradient: ScaleGradient and ReverseGradient."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import CellPattern
from msgrad.wrappers._factor import Factor
from msgrad.wrappers._wrap import wrap
from msgrad.wrappers._wrapper import CellWrapper


class GradientWrapper(CellWrapper):
    """Does something to the gradient of all that enters, or leaves, the wrapped cell."""

    def __init__(self, cell: nn.Cell, at: str) -> None:
        super().__init__(cell)
        self._at = checked_side(at)

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


def checked_side(at: str) -> str:
    """Return `at`, or raise where it is no side of a cell."""
    if at not in ("output", "input"):
        raise ArgumentError(f"at {at!r} is no place of a cell; give 'output' or 'input'")
    return at


_FLOATS = (
    mstype.float16,
    mstype.bfloat16,
    mstype.float32,
    mstype.complex64,
    mstype.complex128,
)


class _MultiplyGradient(GradientWrapper):
    """The gradient that passes is multiplied by a factor that can change without compiling."""

    # of the scale in the factor, and what a scale with the other sign is given to
    _sign, _opposite = 1.0, "ReverseGradient"

    def __init__(self, cell: nn.Cell, scale: float, at: str) -> None:
        super().__init__(cell, at)
        factor = self._sign * checked_scale(scale, self._opposite)
        # Not children: they follow no flag of precision, and are in no walk over the cells. The
        # wider one is for float64 alone, which not every device knows.
        object.__setattr__(self, "_factor", Factor(self, factor, mstype.float32))
        object.__setattr__(self, "_factor64", Factor(self, factor, mstype.float64))

    @property
    def factor(self) -> float:
        """What the gradient is multiplied by now."""
        return self._factor64.factor

    def set_scale(self, scale: float) -> None:
        """Change the factor, without compiling again.

        Args:
            scale: The factor without its sign, finite, 0 or more.

        Raises:
            ArgumentError: ``scale`` is negative or not finite.
            ArgumentTypeError: ``scale`` is no number.
        """
        self._factor64.factor = self._factor.factor = self._sign * checked_scale(
            scale, self._opposite
        )

    def extend_repr(self) -> str:
        """Return the factor and where it acts."""
        return f"scale={self._sign * self.factor}, at={self._at!r}"

    def _one(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.dtype == mstype.float64:
            return self._factor64(value)
        return self._factor(value) if value.dtype in _FLOATS else value


class ScaleGradient(_MultiplyGradient):
    """The gradient that passes is multiplied by a constant; the forward values keep their bits.

    With ``at="output"`` the gradients of the wrapped cell's own weights are scaled too, with
    ``at="input"`` only what flows on upstream. Under an optimizer that normalises gradients (Adam)
    a scaled gradient of a weight makes nearly the same step: give the weight a rate of its own.

    Second derivatives are right, with two exceptions: of an ``ms.jit`` function in PYNATIVE_MODE
    they are wrong, since MindSpore forgets there every gradient that it did not derive itself; of
    a recomputed cell in GRAPH_MODE they do not compile.

    Args:
        cell: The cell to wrap.
        scale: Factor, finite, 0 or more; it is rounded to the type of the gradient.
        at: Where the gradient is scaled: ``"output"`` or ``"input"`` of the cell.

    Inputs:
        Those of the wrapped cell; integers, booleans and sparse tensors pass unchanged.

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
        super().__init__(cell, scale, at)


class ReverseGradient(_MultiplyGradient):
    """The gradient that passes is multiplied by a negative constant: a gradient reversal layer.

    With ``at="input"`` the wrapped cell learns as usual and what is upstream learns the opposite;
    with ``at="output"`` its own weights go the other way too.

    Args:
        cell: The cell to wrap.
        scale: The factor without its sign, finite, 0 or more.
        at: Where the gradient is reversed: ``"input"`` or ``"output"`` of the cell.

    Inputs:
        Those of the wrapped cell; integers, booleans and sparse tensors pass unchanged.

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

    _sign, _opposite = -1.0, "ScaleGradient"

    def __init__(self, cell: nn.Cell, scale: float = 1.0, at: str = "input") -> None:
        super().__init__(cell, scale, at)


def checked_scale(scale: float, opposite: str) -> float:
    """Return the scale, or raise where it is no number, not finite, or negative."""
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise ArgumentTypeError(f"scale {scale!r} is a {type(scale).__name__}; give a number")
    if not math.isfinite(scale):
        raise ArgumentError(f"scale {scale!r} is not finite; give a number, 0 or more")
    if scale < 0:
        raise ArgumentError(f"scale {scale!r} is negative; use {opposite} with scale={-scale!r}")
    return float(scale)


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
    checked_side(at)
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
    checked_scale(scale, "reverse_gradient")
    checked_side(at)
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
    checked_scale(scale, "scale_gradient")
    checked_side(at)
    return wrap(net, *patterns, wrapper=lambda cell: ReverseGradient(cell, scale, at))
