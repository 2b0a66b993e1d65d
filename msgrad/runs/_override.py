"""Changes of a config from the command line, such as ``optimizer.learning_rate=0.01``."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgrad.errors import PlanError, Problem
from msgrad.plans import Document, KeyPath, parse_document

_OPTION = "--set"


@dataclass(frozen=True)
class ChangedDocument(Document):
    """A document some of whose keys come from the command line.

    Attributes:
        changes: Each change as it was given, by the path of its key.
    """

    changes: Mapping[KeyPath, str] = field(default_factory=dict)

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Return a problem at a key, or at the change that set it."""
        change = self._change(path)
        return super().problem(path, message) if change is None else Problem(change, None, message)

    def changed(self, path: KeyPath) -> bool:
        """Say whether a key comes from the command line."""
        return self._change(path) is not None

    def location(self, path: KeyPath) -> str:
        """Say where a key stands: in the file, on the command line, or in part on both."""
        change = self._change(path)
        if change is not None:
            return change
        inside = [self.changes[p] for p in self.changes if p[: len(path)] == path]
        own = [super().location(path)] if path in self.lines or not inside else []
        return ", ".join([*own, *inside])

    def _change(self, path: KeyPath) -> str | None:
        """Return the change that set a key, or a mapping or list that it lies in."""
        parts = (path[:length] for length in range(len(path), 0, -1))
        return next((self.changes[part] for part in parts if part in self.changes), None)


def override(document: Document, changes: Sequence[str]) -> Document:
    """Apply changes to a document.

    Args:
        document: It is not changed.
        changes: ``key=value`` each, the value in YAML; dots lead into mappings, numbers into lists.

    Returns:
        The changed document.

    Raises:
        PlanError: A change is none, or leads nowhere; all of these.

    Examples:
        >>> override(Document({"seed": 1}), ["seed=2", "optimizer.name=SGD"]).values
        {'seed': 2, 'optimizer': {'name': 'SGD'}}
    """
    values = copy.deepcopy(document.values)
    places: dict[KeyPath, str] = {}
    problems: list[Problem] = []
    for change in changes:
        where = f"{_OPTION} {change}"
        try:
            places[_apply(values, change)] = where
        except PlanError as error:
            told = [p.message.replace("the file is", "the value is") for p in error.problems]
            problems += [Problem(where, None, message) for message in told]
    if problems:
        raise PlanError(problems=problems)
    return ChangedDocument(values, document.file, document.lines, document.problems, places)


def _apply(values: Any, change: str) -> KeyPath:
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise PlanError(f"change {change!r} has no key and value; write key=value")
    value = parse_document(text).values if text.strip() else None
    path: KeyPath = ()
    *parents, last = key.split(".")
    for parent in parents:
        step = _step(values, parent, path)
        path = (*path, step)
        values = _entered(values, step)
    step = _step(values, last, path)
    if isinstance(values, list) and step == len(values):
        values.append(value)
    else:
        values[step] = value
    return (*path, step)


def _entered(values: Any, step: Any) -> Any:
    """Return what lies behind a key; a mapping is made where nothing does."""
    if isinstance(values, list):
        if step == len(values):
            values.append({})
        return values[step]
    if values.get(step) is None:
        values[step] = {}
    return values[step]


def _step(values: Any, key: str, path: KeyPath) -> Any:
    """Return the key as it leads into a mapping or a list."""
    owner = ".".join(map(str, path)) or "the config"
    if isinstance(values, dict):
        return key
    if not isinstance(values, list):
        raise PlanError(f"{owner} is {values!r}, no mapping; {key!r} cannot be set in it")
    if not key.isdecimal() or int(key) > len(values):
        end = len(values)
        free = f"0 to {end}, the last to add one" if end else "0 to add one"
        raise PlanError(f"{owner} is a list of {end}, and {key!r} is no place in it; give {free}")
    return int(key)
