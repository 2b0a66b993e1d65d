"""A factor: a cell that passes a tensor as it is and multiplies its gradient by a number."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msgrad.network import hide, rename_hidden, write


class Factor(nn.Cell):
    """Multiplies the gradient of what passes, by a number that can change without compiling.

    Args:
        owner: The wrapper that it works for.
        factor: The number; it is rounded to ``dtype``, and to the type of each gradient.
        dtype: Type to keep it in.

    Inputs:
        - **x** (Tensor): floating, of any shape.

    Outputs:
        Tensor: ``x``, the same bits.

    Examples:
        >>> half = Factor(nn.ReLU(), 0.5, ms.float32)
        >>> print(ms.grad(half)(Tensor([3.0])))
        [0.5]
    """

    _value: Parameter

    def __init__(self, owner: nn.Cell, factor: float, dtype: Any) -> None:
        super().__init__(auto_prefix=False)
        # Past the cells, which would be a circle.
        object.__setattr__(self, "_owner", owner)
        hide(self, "_value", factor, dtype)
        self._by_bprop = _ByBprop()
        self._bind()

    def _bind(self) -> None:
        self._by_operator = ops.InsertGradientOf(self._multiplied)

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        rename_hidden(self)
        self._bind()

    @property
    def factor(self) -> float:
        """The number as it is kept."""
        return float(self._value.asnumpy())

    @factor.setter
    def factor(self, factor: float) -> None:
        write(self._value, Tensor(factor, self._value.dtype))

    def __getattr__(self, name: str) -> Any:
        # Not a property, which a graph would parse: this runs in Python whenever one is compiled.
        if name == "_needs_bprop":
            return self._among_others() and ms.get_context("jit_syntax_level") != ms.STRICT
        return super().__getattr__(name)

    def _among_others(self) -> bool:
        # In PYNATIVE_MODE a graph is a piece of a program (`ms.jit`), in which MindSpore finds no
        # parameter that only the gradient reads; on 2.7 it finds none under `recompute` either. So
        # the forward graph reads it, at a price: no second order. Not for `ms.export`, which sets
        # STRICT: it refuses a parameter that is none of the network's.
        in_jit = ms.get_context("mode") == ms.PYNATIVE_MODE
        return in_jit or self._owner._has_config_recompute

    # What Python calls; a graph reads `construct`.
    def __call__(self, x: Tensor) -> Tensor:
        # In PYNATIVE_MODE the operator has no second order on 2.7.
        return self._by_bprop(x, self._value)

    def construct(self, x: Tensor) -> Tensor:
        """Return the tensor as it is."""
        # In a graph a `bprop` with this number has no second order, and a hook has a wrong one.
        return self._by_bprop(x, self._value) if self._needs_bprop else self._by_operator(x)

    def _multiplied(self, gradient: Tensor) -> Tensor:
        return gradient * ops.cast(self._value, gradient.dtype)


class _ByBprop(nn.Cell):
    def construct(self, x: Tensor, factor: Tensor) -> Tensor:
        return x

    def bprop(self, x: Tensor, factor: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        return dout * ops.cast(factor, dout.dtype), ops.zeros_like(factor)
