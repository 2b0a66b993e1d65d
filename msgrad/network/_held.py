"""What objects of the user's own hold: values, cells, and the attributes that refer to them."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType, MethodType, ModuleType
from typing import Any

from mindspore import Parameter, Tensor, nn

from msgrad.network._source import closure_of

# How far names lead, and how many items make a container one of data.
_DEPTH, _MANY = 6, 10_000
_LIBRARIES = ("mindspore", "msgrad", "numpy", "logging", "_io")


@dataclass
class Held:
    """What was found.

    Attributes:
        cells: Cells, also those that were given.
        values: Parameters and tensors.
        contents: The attributes, dicts and lists in which they stand, with the keys to leave alone.
    """

    cells: list[nn.Cell] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    contents: list[tuple[dict[Any, Any] | list[Any], Collection[str]]] = field(default_factory=list)


def held_by(roots: Iterable[object]) -> Held:
    """Find what functions, cells and the objects in them hold.

    An object counts where it holds a value or a cell, and then with all its attributes: a sum of
    gradients and the number of them belong together. What a function names itself, such as a tensor
    of data, does not count, nor do objects of libraries.
    """
    found, seen = Held(), set()
    waiting = [(root, 0, False) for root in roots]
    while waiting:
        value, depth, owned = waiting.pop()
        if id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            found.values += [value] if owned or isinstance(value, Parameter) else []
        elif isinstance(value, (FunctionType, MethodType)):
            waiting.extend((inside, depth + 1, False) for inside in _named_by(value))
        else:
            found.cells += [value] if isinstance(value, nn.Cell) else []
            own = _contents(value)
            owned = own is not None and (owned or _holds(own))
            if owned and isinstance(own, (dict, list)):
                found.contents.append((own, _of_every_cell() if isinstance(value, nn.Cell) else ()))
            waiting.extend((inside, depth + 1, owned) for inside in _items(own))
    return found


def _named_by(function: FunctionType | MethodType) -> list[Any]:
    """List what a function refers to: names of its module and of functions around it."""
    bound = [function.__self__] if isinstance(function, MethodType) else []
    inner: Any = inspect.unwrap(function.__func__ if isinstance(function, MethodType) else function)
    if not isinstance(inner, FunctionType) or _of_library(inner.__module__):
        return bound
    names = inner.__code__.co_names
    used = [inner.__globals__[name] for name in names if name in inner.__globals__]
    return [*bound, *closure_of(inner).values(), *used]


def _contents(value: Any) -> Any:
    """Return the container that refers to what a value holds, None where it is not the user's."""
    if _is_container(value):
        return value if len(value) <= _MANY else None
    if isinstance(value, (type, ModuleType)) or _of_library(type(value).__module__):
        return None
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict) else None


def _is_container(value: Any) -> bool:
    # a ParameterTuple is a tuple; other kinds of lists and dicts may do more than hold
    return type(value) in (list, dict) or isinstance(value, tuple)


def _items(own: Any) -> list[Any]:
    return list(own.values() if isinstance(own, dict) else own or ())


def _holds(own: Any) -> bool:
    return any(
        isinstance(item, (Tensor, nn.Cell))
        or (_is_container(item) and len(item) <= _MANY and _holds(item))
        for item in _items(own)
    )


def _of_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


@cache
def _of_every_cell() -> frozenset[str]:
    """Return the attributes of every Cell, such as its phase."""
    return frozenset(vars(nn.Cell()))
