"""A schema: named keys and the kind of each; whatever does not fit is noted, all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgrad.errors import ArgumentError, PlanError, Problem
from msgrad.network import nearest, parse
from msgrad.plans._document import Document, KeyPath


class UnfitError(ArgumentError):
    """A value is not of its kind; the message is what follows key and value."""


@dataclass(frozen=True)
class Kind:
    """What the value of a key may be.

    Attributes:
        read: Returns the value, converted where that is safe; raises UnfitError.
    """

    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    # a run named 10
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UnfitError("is no text; put it in quotes")


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise UnfitError("is no choice; give true or false")


def _patterns(value: Any) -> tuple[Any, ...]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    if not given:
        raise UnfitError("has no pattern; give a name such as conv1, or a list of names")
    return tuple(map(_pattern, given))


def _pattern(value: Any) -> Any:
    if isinstance(value, float):
        raise UnfitError(f"is a number to YAML; put the name in quotes, as {str(value)!r}")
    if value is None or isinstance(value, (bool, Mapping, list, tuple, bytes)):
        raise UnfitError("holds no name; give a name such as conv1, or a list of names")
    if isinstance(value, int):
        return str(value)  # a layer named 10
    if isinstance(value, str):
        parse(value)
    return value


def _values(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise UnfitError("is no mapping; write key: value lines")


def _rows(value: Any) -> tuple[int, ...]:
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    if not given or any(isinstance(row, bool) or not isinstance(row, int) for row in given):
        raise UnfitError("are no rows; give whole numbers, as [0, 1]")
    return tuple(given)


def whole(least: int = 0, most: float = math.inf) -> Kind:
    """Return the kind of whole numbers, from `least` to `most`."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnfitError(f"is no whole number; give {least} or more")
        if value < least:
            raise UnfitError(f"is below {least}; give {least} or more")
        if value > most:
            raise UnfitError(f"is above {most}; give {least} to {most}")
        return value

    return Kind(read)


def number(remedy: str = "give 0 or more") -> Kind:
    """Return the kind of finite numbers of 0 or more."""

    def read(value: Any) -> float:
        found = _as_number(value)
        if found is None:
            raise UnfitError(f"is no number; {remedy.partition(',')[0]}")
        if not (math.isfinite(found) and found >= 0):
            raise UnfitError(f"is {'below 0' if found < 0 else 'not finite'}; {remedy}")
        return found

    return Kind(read)


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)  # YAML reads 1e-3 as text
    except (ValueError, OverflowError):
        return None


def one_of(*words: str) -> Kind:
    """Return the kind of some words."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        near = nearest(value, words, 1) if isinstance(value, str) else []
        known = f"give {', '.join(words[:-1])} or {words[-1]}"
        raise UnfitError(
            f"is unknown; did you mean {near[0]!r}?" if near else f"is unknown; {known}"
        )

    return Kind(read)


TEXT = Kind(_text)
SWITCH = Kind(_switch)
PATTERNS = Kind(_patterns)
MAPPING = Kind(_values)
ROWS = Kind(_rows)


class Checker:
    """Reads the mappings of one document, and collects all that is wrong.

    Args:
        document: The document.

    Attributes:
        problems: What was found so far, those of the file included.

    Examples:
        >>> checker = Checker(Document({"sead": 1}))
        >>> checker.mapping((), {"sead": 1}, {"seed": whole()}, "the config")
        {}
        >>> [problem.message for problem in checker.problems]
        ["key 'sead' of the config is unknown; did you mean 'seed'?"]
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = list(document.problems)

    def note(self, path: KeyPath, message: str) -> None:
        """Note a problem at a key."""
        self.problems.append(self.document.problem(path, message))

    def raise_all(self, kind: type[PlanError] = PlanError) -> None:
        """Raise what was found, if anything.

        Raises:
            PlanError: Something was; problems stand in the order of their lines.
        """
        if self.problems:
            raise kind(problems=sorted(self.problems, key=lambda problem: problem.line or 0))

    def mapping(
        self,
        path: KeyPath,
        values: Any,
        kinds: Mapping[str, Kind],
        owner: str,
        elsewhere: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Read one mapping.

        Args:
            path: Where it stands.
            values: The mapping.
            kinds: The kind of each key that it may have.
            owner: What it is, in messages: ``rule 2``.
            elsewhere: Keys that belong to something else, and what to do about them.

        Returns:
            The values that fit, converted; what does not is noted and left out.
        """
        if not isinstance(values, Mapping):
            self.note(path, f"{owner} {values!r} is no mapping; write key: value lines")
            return {}
        found = {}
        for key, value in values.items():
            if key in kinds:
                self._read((*path, key), value, kinds[key], owner, found)
            else:
                self.note((*path, key), _unknown(key, owner, list(kinds), elsewhere or {}))
        return found

    def _read(
        self, path: KeyPath, value: Any, kind: Kind, owner: str, found: dict[str, Any]
    ) -> None:
        key = str(path[-1])
        try:
            found[key] = kind.read(value)
        except UnfitError as error:
            if value is None:
                self.note(path, f"{key} of {owner} is empty; give it a value, or drop the key")
            else:
                self.note(path, f"{key} {value!r} of {owner} {error}")
        except ArgumentError as error:
            # of a pattern, which says itself what it is
            self.note(path, f"{key} of {owner}: {error}")


def _unknown(key: Any, owner: str, known: list[str], elsewhere: Mapping[str, str]) -> str:
    if key in elsewhere:
        return f"key {key!r} does not belong to {owner}; {elsewhere[key]}"
    start = f"key {key!r} of {owner} is unknown; "
    near = nearest(str(key), known, 1)
    if near:
        return f"{start}did you mean {near[0]!r}?"
    far = nearest(str(key), elsewhere, 1)
    if far:
        return f"{start}did you mean {far[0]!r}? Then {elsewhere[far[0]]}"
    return f"{start}known are {', '.join(known)}"
