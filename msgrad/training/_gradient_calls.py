"""What a step differentiates, and by which weights in which order: read from the step itself."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import FunctionType
from typing import Any

from mindspore import Parameter, nn, ops

from msgrad.freezing import own_methods
from msgrad.network import closure_of, source_of

# The modules of `ms.grad` and `ops.GradOperation`; what they return holds what it was made from.
_MAKERS = ("mindspore.ops.composite", "mindspore.ops.function.grad")
_DEPTH = 4


@dataclass(frozen=True)
class GradientFunction:
    """What `value_and_grad`, `grad` or a `GradOperation` returned.

    Attributes:
        function: What it differentiates.
        weights: By what; empty where it is by the inputs.
    """

    function: Any
    weights: tuple[Parameter, ...]


def gradient_functions(function: object) -> list[GradientFunction]:
    """List the gradient functions that a Python function can reach by its names."""
    return list(_gradient_functions(function, set(), _DEPTH))


def _gradient_functions(value: object, seen: set[int], depth: int) -> Iterator[GradientFunction]:
    if not depth or id(value) in seen:
        return
    seen.add(id(value))
    value = inspect.unwrap(value) if callable(value) else value
    if not isinstance(value, FunctionType):
        return
    if value.__module__.startswith(_MAKERS):
        own = closure_of(value)
        function = own.get("fn_", own.get("fn"))
        if callable(function):
            yield GradientFunction(function, _sequence(own.get("weights")))
    elif not value.__module__.startswith("mindspore."):
        used = [value.__globals__.get(name) for name in value.__code__.co_names]
        for found in [*closure_of(value).values(), *used]:
            yield from _gradient_functions(found, seen, depth - 1)


def _sequence(value: object) -> tuple[Parameter, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(v, Parameter) for v in value):
        return tuple(value)
    return ()


def misordered(
    step: nn.Cell | Callable[..., object], optimizer: nn.Cell, *, alone: bool = True
) -> list[str]:
    """Name the weights whose gradients come in another order or number than the optimizer's.

    Args:
        step: What takes the gradients and hands them to the optimizer.
        optimizer: The optimizer, which takes them by their place.
        alone: Whether it is the only one, so that what a step differentiates by is its to take.
    """
    wanted = list(optimizer.parameters)
    lists = differentiated_by(step)
    for weights in lists:
        same = {id(p) for p in weights} == {id(p) for p in wanted}
        if same or (alone and len(lists) == 1):
            pairs = zip_longest(weights, wanted)
            wrong = [a if a is not None else b for a, b in pairs if a is not b]
            if wrong:
                return [str(p.name) for p in wrong if p is not None]
    return []


def differentiated_by(step: nn.Cell | Callable[..., object]) -> list[tuple[Parameter, ...]]:
    """List the weights by which a step takes its gradients, in their order, one tuple per place."""
    if not isinstance(step, nn.Cell):
        return [found.weights for found in gradient_functions(step) if found.weights]
    functions = [g for v in vars(step).values() for g in gradient_functions(v)]
    found = [g.weights for g in functions if g.weights]
    for method in own_methods(type(step)):
        found += [
            _sequence(getattr(step, name, None)) for name in _names_in_gradients(method, step)
        ]
    return [weights for weights in found if weights]


def _names_in_gradients(method: FunctionType, step: nn.Cell) -> Sequence[str]:
    """Name the attributes that a method hands to a gradient operation."""
    source = source_of(method)
    if source is None:
        return []
    return [
        argument.attr
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and _makes_gradients(call.func, step)
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(argument, ast.Attribute) and ast.unparse(argument.value) == "self"
    ]


def _makes_gradients(func: ast.expr, step: nn.Cell) -> bool:
    if isinstance(func, ast.Attribute) and ast.unparse(func.value) == "self":
        return isinstance(getattr(step, func.attr, None), ops.GradOperation)
    name = func.func if isinstance(func, ast.Call) else func
    return ast.unparse(name).split(".")[-1] in ("GradOperation", "grad", "value_and_grad")
