"""Results that are constants for automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from mindspore import nn, ops

from msgrad.errors import ArgumentTypeError

Function = TypeVar("Function", bound=Callable[..., Any])


def no_grad(fn: Function) -> Function:
    """Make what a function returns a constant for automatic differentiation; a decorator.

    No gradient flows back through the result, neither to the inputs nor to parameters that the
    function uses, in graph and eager mode, and in gradients of gradients. The function may return
    tensors, tuples, lists, dicts, None and numbers. What it assigns to parameters it still assigns.

    Args:
        fn: A function, a method (also ``construct``) whose first input is called ``self``, or a
            Cell; for a Cell inside a network see also `StopGradient`.

    Returns:
        A function with the same inputs. It holds no parameters, also where ``fn`` is a Cell: keep
        that Cell in the network as well.

    Raises:
        ArgumentTypeError: ``fn`` cannot be called.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import ops
        >>> import msgrad as mg
        >>> square = mg.no_grad(ops.square)
        >>> float(ms.grad(square)(ms.Tensor(3.0)))
        0.0
    """
    if isinstance(fn, type) or not callable(fn):
        raise ArgumentTypeError(f"fn {fn!r} cannot be called; give a function, a method or a Cell")
    constant: Any = _constant_method(fn) if _is_method(fn) else _constant_function(fn)
    # Not functools.wraps: the graph parser follows __wrapped__ and would compile fn without the
    # stop.
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        if hasattr(fn, name) and not isinstance(fn, nn.Cell):
            setattr(constant, name, getattr(fn, name))
    return constant


def _is_method(fn: Any) -> bool:
    return isinstance(fn, FunctionType) and fn.__code__.co_varnames[:1] == ("self",)


def _constant_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    # in the closure: MindSpore 2.7 looks for globals in the module that __module__ names
    stop = ops.stop_gradient

    def constant(*args: Any, **kwargs: Any) -> Any:
        return stop(fn(*args, **kwargs))

    return constant


def _constant_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    stop = ops.stop_gradient

    # in a graph a method gets its cell apart from *args
    def constant(self: Any, *args: Any, **kwargs: Any) -> Any:
        return stop(fn(self, *args, **kwargs))

    return constant


def made_by_no_grad(function: FunctionType) -> bool:
    """Say whether `no_grad` made this function."""
    return function.__globals__ is globals()
