"""Flags that were set where nothing reads them: under another name, or on a cell."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from mindspore import Parameter, Tensor, nn

from msgrad._text import few
from msgrad.auditing._rows import Finding
from msgrad.freezing import own_methods
from msgrad.network import (
    Source,
    cell_paths,
    core_of,
    every_cell,
    inner_network,
    resolved,
    source_of,
)

_FLAG = "requires_grad"
# Attributes of other frameworks, or of nobody.
_OTHER_WORDS = frozenset({"trainable", "frozen", "freeze", "requires_gradient", "learnable"})
# Of 1; `require_grad` has 0.96, `return_grad` of MindSpore 0.75.
_ALIKE = 0.85
_HERE = os.path.dirname(__file__)
_PYTHON = sysconfig.get_path("stdlib")


def misplaced_flags(network: nn.Cell, moving: set[str]) -> Iterator[Finding]:
    """Name flags that did not freeze what they were meant to freeze."""
    standard = vars(Parameter(Tensor([0.0]), name="x"))
    for parameter in network.get_parameters():
        for key in vars(parameter).keys() - standard.keys():
            if _looks_like_the_flag(key):
                name = str(parameter.name)
                yield _finding(f"{key!r} is set on the parameter {name!r}", [name])
    for path, top in cell_paths(inner_network(network)):
        cell = core_of(top)
        below = [str(p.name) for p in cell.get_parameters() if str(p.name) in moving]
        # a class of the user's own may read an attribute that it calls "frozen"
        ours = type(cell).__module__.startswith("mindspore.")
        for key in vars(cell):
            if below and _looks_like_the_flag(key) and (ours or key not in _OTHER_WORDS):
                yield _finding(f"{key!r} is set on the cell {path!r}", below)
    for place, cell in _flagged_cells(network):
        below = [str(p.name) for p in cell.get_parameters() if str(p.name) in moving]
        if below:
            yield _finding(f"{place} sets {_FLAG} on a {type(cell).__name__}, a cell,", below)


def _finding(what: str, names: list[str]) -> Finding:
    return Finding(
        "misplaced flag",
        f"{what} and nothing reads it: {few(names)} did not freeze; set .requires_grad of the "
        "parameters, or use mg.freeze",
        tuple(names),
    )


@cache
def _looks_like_the_flag(key: str) -> bool:
    return key in _OTHER_WORDS or (
        key != _FLAG and bool(get_close_matches(key, [_FLAG], cutoff=_ALIKE))
    )


# --- a flag of a cell leaves no trace in it: every cell has one, and it is False from the beginning


def _flagged_cells(network: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """Find in the source of the callers and of the network's classes where a cell's flag is set."""
    seen: set[tuple[str, int]] = set()
    for source, names in _sources(network):
        for line, target in _flags_turned_off(source.tree):
            place = (os.path.basename(source.file), source.offset + line)
            cell = resolved(target, names)
            if isinstance(cell, nn.Cell) and place not in seen:
                seen.add(place)
                yield f"{place[0]}:{place[1]}", cell


def _sources(network: nn.Cell) -> Iterator[tuple[Source, Mapping[str, Any]]]:
    """Return sources, and what their names mean."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if _is_the_users(frame.f_code.co_filename):
            source = source_of(frame.f_code)
            if source is not None:
                yield source, {**frame.f_globals, **frame.f_locals}
        frame = frame.f_back
    for cell in every_cell(network):
        for method in own_methods(type(cell)):
            source = source_of(method)
            if source is not None:
                yield source, {**method.__globals__, "self": cell}


def _is_the_users(file: str) -> bool:
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return os.path.exists(file) and not installed and not file.startswith((_HERE, _PYTHON))


def _flags_turned_off(tree: ast.AST) -> Iterator[tuple[int, ast.expr]]:
    """Return line and target of each `x.requires_grad = False` and `x.set_grad(False)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_false(node.value):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == _FLAG:
                    yield node.lineno, target.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if node.func.attr == "set_grad" and given and _is_false(given[0]):
                yield node.lineno, node.func.value


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False
