"""Wrappers that multiply the gradient: ScaleGradient and ReverseGradient."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from mindspore import Tensor, nn
from mindspore import dtype as mstype

from msgrad._errors import ArgumentError, ArgumentTypeError
from msgrad._factor import Factor
from msgrad._stop import GradientWrapper

_FLOATS = (
    mstype.float16,
    mstype.bfloat16,
    mstype.float32,
    mstype.complex64,
    mstype.complex128,
)


class _MultiplyGradient(GradientWrapper):
    """The gradient that passes is multiplied by a factor that can change without compiling."""

    def __init__(self, cell: nn.Cell, factor: float, at: str) -> None:
        super().__init__(cell, at)
        # Not children: they follow no flag of precision, and are in no walk over the cells. The
        # wider one is for float64 alone, which not every device knows.
        object.__setattr__(self, "_factor", Factor(self, factor, mstype.float32))
        object.__setattr__(self, "_factor64", Factor(self, factor, mstype.float64))

    @property
    def factor(self) -> float:
        """What the gradient is multiplied by now."""
        return self._factor64.factor

    def _set_factor(self, factor: float) -> None:
        self._factor.factor = factor
        self._factor64.factor = factor

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
        super().__init__(cell, checked_scale(scale, "ReverseGradient"), at)

    def set_scale(self, scale: float) -> None:
        """Change the factor, without compiling again.

        Args:
            scale: Factor, finite, 0 or more.

        Raises:
            ArgumentError: ``scale`` is negative or not finite.
            ArgumentTypeError: ``scale`` is no number.
        """
        self._set_factor(checked_scale(scale, "ReverseGradient"))

    def extend_repr(self) -> str:
        """Return the factor and where it acts."""
        return f"scale={self._factor64.factor}, at={self._at!r}"


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

    def __init__(self, cell: nn.Cell, scale: float = 1.0, at: str = "input") -> None:
        super().__init__(cell, -checked_scale(scale, "ScaleGradient"), at)

    def set_scale(self, scale: float) -> None:
        """Change the factor, without compiling again.

        Args:
            scale: The factor without its sign, finite, 0 or more.

        Raises:
            ArgumentError: ``scale`` is negative or not finite.
            ArgumentTypeError: ``scale`` is no number.
        """
        self._set_factor(-checked_scale(scale, "ScaleGradient"))

    def extend_repr(self) -> str:
        """Return the factor and where it acts."""
        return f"scale={-self._factor64.factor}, at={self._at!r}"


def checked_scale(scale: float, opposite: str) -> float:
    """Return the scale, or raise where it is no number, not finite, or negative."""
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise ArgumentTypeError(f"scale {scale!r} is a {type(scale).__name__}; give a number")
    if not math.isfinite(scale):
        raise ArgumentError(f"scale {scale!r} is not finite; give a number, 0 or more")
    if scale < 0:
        raise ArgumentError(f"scale {scale!r} is negative; use {opposite} with scale={-scale!r}")
    return float(scale)
