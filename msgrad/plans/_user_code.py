"""A function that a file names: a ready rule, one in a Python file, or one of a package."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

from msgrad.errors import ArgumentError
from msgrad.network import nearest
from msgrad.updates import rules as ready_rules


class Functions:
    """Finds functions by what a file calls them, each once.

    Args:
        folder: What the paths of Python files start from.

    Examples:
        >>> Functions(Path()).of("clip", [-1.0, 1.0]).__name__
        'rule'
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[tuple[tuple[Any, Any], Any]] = []

    def of(self, function: Any, arguments: Any = None) -> Any:
        """Return the function; of a ready rule, or where arguments are given, what a call makes.

        Args:
            function: ``clip``, ``file.py:function``, ``package.module:function``, or a callable.
            arguments: A list or a mapping of arguments, or None.

        Returns:
            The function of a weight, the same one each time.

        Raises:
            ArgumentError: There is no such function, or it does not take these arguments.
        """
        key = (function, arguments)
        for known, made in self._made:
            if known == key:
                return made
        made = self._make(function, arguments)
        self._made.append((key, made))
        return made

    def _make(self, function: Any, arguments: Any) -> Any:
        if callable(function):
            found, ready = function, False
        elif ":" in function:
            found, ready = named(function, self._folder), False
        else:
            found, ready = getattr(ready_rules, function), True
        if arguments is None and not ready and not isinstance(found, type):
            return found
        return _called(str(function), found, {} if arguments is None else arguments)


def named(text: str, folder: Path) -> Any:
    """Return the function that ``file.py:function`` or ``package.module:function`` names.

    Args:
        text: The name.
        folder: What the path of a file starts from.

    Returns:
        What stands in the module under that name, which can be called.

    Raises:
        ArgumentError: There is no such module or function, or it cannot be called.
    """
    where, _, name = text.rpartition(":")
    module = module_of(where, folder)
    found = getattr(module, name, None)
    if found is None:
        own = [n for n, value in vars(module).items() if callable(value) and n[0] != "_"]
        near = nearest(name, own, 1) or own[:1]
        meant = f"did you mean {near[0]!r}?" if near else "write it there"
        raise ArgumentError(f"fn {text!r}: {where} has no function {name!r}; {meant}")
    if not callable(found):
        raise ArgumentError(f"fn {text!r} is {found!r}, no function; give a function of a weight")
    return found


def module_of(where: str, folder: Path) -> ModuleType:
    """Return the module of a Python file, or of a dotted name; a file is run once.

    Args:
        where: ``file.py``, or ``package.module``.
        folder: What the path of a file starts from.

    Returns:
        The module.

    Raises:
        ArgumentError: There is none, or it fails.
    """
    if not where.endswith(".py"):
        try:
            return import_module(where)
        except Exception as error:
            remedy = "give a module that can be imported, or a file, as file.py:function"
            raise ArgumentError(f"module {where!r} fails: {error}; {remedy}") from error
    path = (folder / where).resolve()
    name = f"{path.stem}_{crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ArgumentError(f"file {where!r} is not in {str(folder)!r}; give a path from there")
    try:
        return run_file(path, name)
    except Exception as error:
        raise ArgumentError(f"file {where!r} fails: {error!r}; mend it first") from error


def run_file(path: Path, name: str) -> ModuleType:
    """Import a Python file anew, under a name that no package has."""
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # dataclasses and the graph parser look a module up by its name
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _called(label: str, function: Callable[..., Any], arguments: Any) -> Any:
    given, named_ones = ([], arguments) if isinstance(arguments, dict) else (arguments, {})
    try:
        inspect.signature(function).bind(*given, **named_ones)
    except TypeError as error:
        takes = ", ".join(inspect.signature(function).parameters)
        raise ArgumentError(
            f"fn {label!r} does not take args {arguments!r}: {error}; it takes ({takes})"
        ) from None
    try:
        return function(*given, **named_ones)
    except Exception as error:
        # whatever a function of the user's raises is told with its line in the file
        raise ArgumentError(f"fn {label!r} with args {arguments!r}: {error}") from error
