"""Parameters that a cell's own methods write in the forward pass, read from its source."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache, reduce
from types import FunctionType
from typing import Any

from mindspore import Parameter, nn
from mindspore.ops import Primitive

from msgrad.network import closure_of, every_cell, source_of

# Operators and methods that write their first argument, or the parameter that they are called on.
_WRITES = re.compile(r"assign|scatter(?!_?nd$)|set_data|[a-z]_$|^apply", re.IGNORECASE)


def forward_writes(net: nn.Cell) -> dict[int, str]:
    """Return of each parameter that a user's cell writes itself where it does, by its id.

    Running statistics of MindSpore's norms are not among them, nor what only a parent's optimizer
    writes.
    """
    found: dict[int, str] = {}
    for cell in every_cell(net):
        for parameter, _, where in _writes_in(cell):
            found.setdefault(id(parameter), where)
    return found


def _is_writer(value: Any) -> bool:
    return isinstance(value, Primitive) and bool(_WRITES.search(str(getattr(value, "name", ""))))


def _at(cell: nn.Cell, path: str) -> object:
    try:
        return reduce(getattr, path.split("."), cell)
    except AttributeError:
        return None


@cache
def own_writes(kind: type[nn.Cell]) -> dict[tuple[str, str], str]:
    """Map what methods of a class write under `self` to the method and line that does.

    Beside each path stands that of the operator which writes it, where `self` has that too.
    """
    found: dict[tuple[str, str], str] = {}
    for method in own_methods(kind):
        # what msgrad's own cells write is none of the network's
        if method.__name__ == "__init__" or method.__module__.startswith("msgrad."):
            continue
        for path, by, line in _writes_of(method, "self"):
            if path:
                found.setdefault((path, by), f"line {line} of {method.__qualname__}")
    return found


def free_write(cell: nn.Cell) -> str | None:
    """Say what a cell writes whatever the mode is, and where; None where there is nothing."""
    for _, path, where in _writes_in(cell):
        if not _guarded(type(cell)):
            return f"{where} writes {path!r} in each forward pass"
    return None


def _writes_in(cell: nn.Cell) -> Iterator[tuple[Parameter, str, str]]:
    for (path, by), where in own_writes(type(cell)).items():
        value = _at(cell, path)
        if isinstance(value, Parameter) and (not by or _is_writer(_at(cell, by))):
            yield value, path, where


@cache
def _guarded(kind: type[nn.Cell]) -> bool:
    """Whether the methods of a class ask for the mode, as around a write in training only."""
    trees = [source.tree for method in own_methods(kind) if (source := source_of(method))]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return any(isinstance(node, ast.Attribute) and node.attr == "training" for node in nodes)


def own_methods(kind: type[nn.Cell]) -> Iterator[FunctionType]:
    """Yield the methods of a class that are not MindSpore's."""
    for owner in kind.__mro__:
        if issubclass(owner, nn.Cell) and not owner.__module__.startswith("mindspore."):
            for value in vars(owner).values():
                if isinstance(value, FunctionType):
                    yield inspect.unwrap(value)


def _writes_of(function: FunctionType, root: str, depth: int = 2) -> Iterator[tuple[str, str, int]]:
    """Yield what a function writes of an argument: the path under it, what writes, the line."""
    source = source_of(function)
    if source is None:
        return
    names = {root: ""}
    for node in ast.walk(source.tree):
        line = source.offset + getattr(node, "lineno", 0)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, path = node.targets[0], _path(node.value, names)
            if isinstance(target, ast.Name) and path is not None:
                names[target.id] = path
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                path = _path(target, names)
                if path is not None and not isinstance(target, ast.Name):
                    yield path, "", line
        elif isinstance(node, ast.Call):
            for path, by in _written_by(node, names, function, depth):
                yield path, by, line


def _written_by(
    call: ast.Call, names: dict[str, str], function: FunctionType, depth: int
) -> Iterator[tuple[str, str]]:
    func, name = call.func, _last(call.func)
    first = _path(call.args[0], names) if call.args else None
    if _WRITES.search(name):
        on = _path(func.value, names) if isinstance(func, ast.Attribute) else None
        yield from ((path, "") for path in (first, on) if path is not None)
        return
    by = _path(func, names)
    if by and first is not None:
        yield first, by
    called = {**function.__globals__, **closure_of(function)}.get(name)
    if depth and isinstance(func, ast.Name) and isinstance(called, FunctionType):
        for argument, parameter in zip(
            call.args, inspect.signature(called).parameters, strict=False
        ):
            base = _path(argument, names)
            if base is not None:
                for path, _, _ in _writes_of(inspect.unwrap(called), parameter, depth - 1):
                    yield ".".join(filter(None, [base, path])), ""


def _last(func: ast.expr) -> str:
    while isinstance(func, ast.Call):
        func = func.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _path(node: ast.expr, names: dict[str, str]) -> str | None:
    """Return the path of an expression under the argument, where it is one; "" is the argument."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join(filter(None, [names[node.id], *parts]))
