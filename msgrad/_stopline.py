"""The lines of a cell's source that stop a gradient: candidates, by reading it."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator
from functools import reduce
from types import FunctionType
from typing import Any

from mindspore import nn, ops

from msgrad import _no_grad
from msgrad._source import closure_of, source_of
from msgrad._unheld import own_methods


def stop_lines(cell: nn.Cell) -> list[str]:
    """List `file:line` of each stop in the methods of a cell and in the functions they call."""
    functions: list[Any] = list(own_methods(type(cell)))
    functions += [value for value in vars(cell).values() if isinstance(value, FunctionType)]
    seen: set[int] = set()
    return list(dict.fromkeys(line for f in functions for line in _lines(f, cell, seen)))


def _lines(function: FunctionType, cell: nn.Cell, seen: set[int]) -> Iterator[str]:
    function = inspect.unwrap(function)
    if id(function) in seen or function.__module__.startswith("mindspore."):
        return
    seen.add(id(function))
    if function.__globals__ is vars(_no_grad):
        inner = closure_of(function)["fn"]
        if isinstance(inner, FunctionType):
            yield _place(inner, inner.__code__.co_firstlineno)
        return
    source = source_of(function)
    if source is None:
        return
    for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
        called = _resolved(call.func, function, cell)
        if _stops(called) or (isinstance(call.func, ast.Attribute) and call.func.attr == "detach"):
            yield _place(function, source.offset + call.lineno)
        elif isinstance(called, FunctionType):
            yield from _lines(called, cell, seen)


def _stops(called: Any) -> bool:
    return called is ops.stop_gradient or (
        isinstance(called, ops.Primitive) and called.name == "StopGradient"
    )


def _resolved(func: ast.expr, function: FunctionType, cell: nn.Cell) -> Any:
    """Return what a call calls, as far as names and attributes tell."""
    root, *path = ast.unparse(func).split(".")
    names = {**function.__globals__, **closure_of(function), "self": cell}
    try:
        return reduce(getattr, path, names[root])
    except (KeyError, AttributeError):
        return None


def _place(function: FunctionType, line: int) -> str:
    return f"{os.path.basename(function.__code__.co_filename)}:{line}"
