"""A document: plain values, and the line of each of their keys where they come from a YAML file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from msgrad._extras import needed
from msgrad.errors import PlanError, Problem

KeyPath: TypeAlias = "tuple[str | int, ...]"


@dataclass(frozen=True)
class Document:
    """Values as YAML gives them, and where they stand.

    Attributes:
        values: Mappings, lists, texts, numbers.
        file: The file as it was given; None for values from Python.
        lines: The line of every key and list item, by its path from the top.
        problems: What the file itself has wrong: keys that stand twice.

    Examples:
        >>> Document({"plan": []}).problem(("plan",), "plan has no rule").line is None
        True
    """

    values: Any
    file: str | None = None
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder that paths in the document start from."""
        return Path(self.file).parent if self.file is not None else Path()

    def changed(self, path: KeyPath) -> bool:
        """Say whether a key does not come from the file but from a change of it."""
        return False

    def line(self, path: KeyPath) -> int | None:
        """Return the line of a key or list item; of what is not in the file, that of its parent."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Return a problem at a key."""
        return Problem(self.file, self.line(path), message)

    def location(self, path: KeyPath) -> str:
        """Say where a key stands, as ``plan.yaml:14``; empty for values from Python.

        Without folders: a location is part of what a checkpoint keeps, and may be read elsewhere.
        """
        if self.file is None:
            return ""
        return f"{Path(self.file).name}:{self.line(path)}"


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a YAML file; an empty one is an empty mapping.

    Args:
        path: The file.

    Returns:
        Its values, with the line of every key; keys that stand twice are among its problems.

    Raises:
        PlanError: The file cannot be read, or is no YAML.
        MissingPackageError: PyYAML is not installed.
    """
    file = os.fspath(path)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise _unreadable(file, None, f"cannot be read: {reason}; give a YAML file") from None
    return parse_document(text, file)


def parse_document(text: str, file: str | None = None) -> Document:
    r"""Read YAML from a text.

    Args:
        text: The text.
        file: What to call it in messages.

    Returns:
        Its values, with the line of every key; keys that stand twice are among its problems.

    Raises:
        PlanError: It is no YAML.
        MissingPackageError: PyYAML is not installed.

    Examples:
        >>> document = parse_document("seed: 1\nplan:\n- freeze: conv1", "a.yaml")
        >>> document.values, document.line(("plan", 0, "freeze"))
        ({'seed': 1, 'plan': [{'freeze': 'conv1'}]}, 3)
    """
    yaml = needed("yaml", "a YAML file")
    try:
        loader = yaml.SafeLoader(text)
        reader = _Reader(yaml, loader, file)
        node = loader.get_single_node()
        values = {} if node is None else reader.value(node, (), frozenset())
    except yaml.YAMLError as error:
        raise _unreadable(file, *_reason(error, text)) from None
    return Document(values, file, reader.lines, tuple(reader.problems))


def _reason(error: Any, text: str) -> tuple[int, str]:
    """Return the line of an error of PyYAML, and what it says."""
    mark = getattr(error, "problem_mark", None)
    line = mark.line if mark is not None else text.count("\n", 0, getattr(error, "position", 0))
    reason = getattr(error, "problem", None) or getattr(error, "reason", error)
    start = getattr(getattr(error, "context_mark", None), "line", line)
    around = "".join(text.splitlines()[start : line + 1])
    # signs of patterns that mean something else to YAML
    sign = next((sign for sign in "*!{" if sign in around), None)
    remedy = f"put a name with {sign} in quotes" if sign else "write key: value lines"
    return line + 1, f"is no YAML: {reason}; {remedy}"


def _unreadable(file: str | None, line: int | None, reason: str) -> PlanError:
    return PlanError(problems=[Problem(file, line, f"the file {reason}")])


class _Reader:
    """Makes values of YAML nodes, and notes lines."""

    def __init__(self, yaml: Any, loader: Any, file: str | None) -> None:
        self._yaml = yaml
        self._loader = loader
        self._file = file
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        # an anchor that is used again brings the same node, flat already
        self._seen: set[int] = set()

    def value(self, node: Any, path: KeyPath, above: frozenset[int]) -> Any:
        if id(node) in above:
            raise self._yaml.constructor.ConstructorError(
                None, None, "an anchor stands inside itself", node.start_mark
            )
        above = above | {id(node)}
        if isinstance(node, self._yaml.MappingNode):
            return self._mapping(node, path, above)
        if isinstance(node, self._yaml.SequenceNode):
            return [self._item(item, (*path, n), above) for n, item in enumerate(node.value)]
        value = self._loader.construct_object(node)
        # 010 is eight to YAML and 1:30 ninety: only what a number looks like is one
        plain = isinstance(value, int) and not isinstance(value, bool)
        return node.value if plain and str(value) != node.value.removeprefix("+") else value

    def _item(self, node: Any, path: KeyPath, above: frozenset[int]) -> Any:
        self.lines[path] = node.start_mark.line + 1
        return self.value(node, path, above)

    def _mapping(self, node: Any, path: KeyPath, above: frozenset[int]) -> dict[Any, Any]:
        if id(node) not in self._seen:
            self._seen.add(id(node))
            self._note_twice(node)
            self._loader.flatten_mapping(node)
        values = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, (*path, key), above)
        return values

    def _note_twice(self, node: Any) -> None:
        own: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue  # what it brings may stand here too, and then counts
            key, line = self._key(key_node), key_node.start_mark.line + 1
            if key in own:
                self.problems.append(Problem(self._file, line, _twice(key, own[key])))
            own.setdefault(key, line)

    def _key(self, node: Any) -> Any:
        if not isinstance(node, self._yaml.ScalarNode):
            raise self._yaml.constructor.ConstructorError(
                None, None, "a key is a list or a mapping", node.start_mark
            )
        return self.value(node, (), frozenset())


def _twice(key: object, first: int) -> str:
    return f"key {key!r} stands twice, first in line {first}; keep one of them"
