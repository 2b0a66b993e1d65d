"""The source of functions, as a tree: to read what a compiled graph does not show."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple


class Source(NamedTuple):
    """The tree of a function or module, its file, and the line before its first one."""

    tree: ast.AST
    file: str
    offset: int


def source_of(function: FunctionType | CodeType) -> Source | None:
    """Parse the source of a function or of code; None where there is none to be found."""
    code = function.__code__ if isinstance(function, FunctionType) else function
    try:
        lines, start = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    # a module begins at line 0, a function at the line of its first decorator
    return Source(tree, code.co_filename, max(start, 1) - 1)


def called_by(function: object) -> list[Any]:
    """List what a Python function calls by a name of its module or of a function around it."""
    function = inspect.unwrap(function) if callable(function) else function
    source = source_of(function) if isinstance(function, FunctionType) else None
    if source is None or not isinstance(function, FunctionType):
        return []
    known = {**function.__globals__, **closure_of(function)}
    calls = [node.func for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    names = dict.fromkeys(func.id for func in calls if isinstance(func, ast.Name))
    return [known[name] for name in names if name in known]


def resolved(expression: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return what names, attributes and constant indices stand for; None for all else."""
    try:
        if isinstance(expression, ast.Name):
            return names[expression.id]
        if isinstance(expression, ast.Attribute):
            return getattr(resolved(expression.value, names), expression.attr)
        if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
            return resolved(expression.value, names)[expression.slice.value]
    except (KeyError, IndexError, AttributeError, TypeError):
        return None
    return None


def closure_of(function: FunctionType) -> dict[str, Any]:
    """Return what the names of outer functions mean in a function."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    # a name that has no value yet has an empty cell, which raises when it is read
    return {name: cell.cell_contents for name, cell in cells if cell != CellType()}
