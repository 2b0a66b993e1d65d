"""A string pattern, parsed: its `!`, its braces, its shell signs or its regular expression."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from fnmatch import translate
from itertools import pairwise
from typing import TypeAlias

from msgrad.errors import ArgumentError, ArgumentTypeError

REGEX = "re:"
LONGEST_RANGE = 100_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)", re.ASCII)
# Texts, and between them the alternatives that a pair of braces holds.
_Pieces: TypeAlias = "list[str | list[_Pieces]]"


@dataclass(frozen=True)
class NamePattern:
    """A parsed string pattern.

    Attributes:
        source: The pattern as the user wrote it.
        negated: Whether it takes away.
        literal: The name to look up; empty where `regex` says what matches.
        regex: What a whole name must match.
        word: A name like those that are meant, to find the nearest ones by.

    Examples:
        >>> parse("!layers.{0..5}").word
        'layers.0'
    """

    source: str
    negated: bool
    literal: str
    regex: re.Pattern[str] | None
    word: str

    def __repr__(self) -> str:
        return repr(self.source)


def parse(source: str, known: Container[str] = frozenset()) -> NamePattern:
    """Parse one string pattern.

    Args:
        source: The pattern as the user wrote it.
        known: Existing names; one of them stands for itself, whatever characters it holds.

    Returns:
        The parsed pattern.

    Raises:
        ArgumentTypeError: The pattern is no string.
        ArgumentError: It is empty, or malformed; the message gives the position, counted from 0.

    Examples:
        >>> bool(parse("re:fc[12]").regex.fullmatch("fc2"))
        True
    """
    if not isinstance(source, str):
        raise ArgumentTypeError(f"pattern {source!r} is no string; give a name such as 'conv1'")
    negated = source.startswith("!")
    text = source.removeprefix("!")
    start = len(source) - len(text)
    if text in ("", REGEX) or text.startswith("!"):
        raise ArgumentError(
            f"pattern {source!r} has no name at position {start}; give a name such as 'conv1'"
        )
    if text.startswith(REGEX):
        word = re.sub(r"[*?+\\^$()\[\]{}]", "", text.removeprefix(REGEX))
        return NamePattern(source, negated, "", _regex(source, start + len(REGEX)), word)
    if text in known:
        return NamePattern(source, negated, text, None, text)
    pieces = _read(source, start, len(source))
    word = re.sub(r"[*?\[\]]", "", _first(pieces))
    if pieces == [text] and word == text:
        return NamePattern(source, negated, text, None, word)
    return NamePattern(source, negated, "", re.compile(_shell(pieces)), word)


def _regex(source: str, start: int) -> re.Pattern[str]:
    try:
        return re.compile(source[start:])
    except (re.error, OverflowError, RecursionError) as error:
        position = start + (getattr(error, "pos", None) or 0)
        raise ArgumentError(
            f"pattern {source!r} is no regular expression: {getattr(error, 'msg', error)} at "
            f"position {position}; put a backslash before what is meant literally"
        ) from None


def _first(pieces: _Pieces) -> str:
    return "".join(p if isinstance(p, str) else _first(p[0]) for p in pieces)


def _shell(pieces: _Pieces) -> str:
    # translate() ends in an anchor of two characters, for which the text between braces is no end.
    return "".join(
        translate(p)[:-2] if isinstance(p, str) else f"(?:{'|'.join(map(_shell, p))})"
        for p in pieces
    )


def _read(source: str, start: int, stop: int) -> _Pieces:
    """Split `source[start:stop]` at its outermost braces."""
    pieces: _Pieces = []
    while True:
        opening = source.find("{", start, stop)
        stray = source.find("}", start, stop if opening < 0 else opening)
        if stray >= 0:
            raise _unbalanced(source, stray)
        pieces.append(source[start : stop if opening < 0 else opening])
        if opening < 0:
            return pieces
        bounds = _bounds(source, opening, stop)
        pairs = [(left, right - 1) for left, right in pairwise(bounds)]
        pieces.append([option for pair in pairs for option in _options(source, *pair)])
        start = bounds[-1]


def _bounds(source: str, opening: int, stop: int) -> list[int]:
    """Return where each alternative begins, and last where the text behind the braces begins."""
    depth, bounds = 0, [opening + 1]
    for position in range(opening, stop):
        character = source[position]
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return [*bounds, position + 1]
        if character == "," and depth == 1:
            bounds.append(position + 1)
    raise _unbalanced(source, opening)


def _options(source: str, start: int, stop: int) -> Iterator[_Pieces]:
    """Return what one alternative stands for: the numbers of a range, or itself."""
    ends = _RANGE.fullmatch(source, start, stop)
    if ends:
        for number in _numbers(source, start, *ends.groups()):
            yield [number]
        return
    pieces = _read(source, start, stop)
    if source[start - 1 : stop + 1] == "{}" or any(".." in p for p in pieces if isinstance(p, str)):
        raise ArgumentError(
            f"pattern {source!r} has neither names nor a range of whole numbers in braces at "
            f"position {start}; write '{{q,v}}' or '{{0..5}}'"
        )
    yield pieces


def _numbers(source: str, start: int, first: str, last: str) -> Iterator[str]:
    low, high = sorted((int(first), int(last)))
    if high - low >= LONGEST_RANGE:
        raise ArgumentError(
            f"pattern {source!r} has a range of {high - low + 1} numbers at position {start}; "
            "write '*' there"
        )
    padded = any(re.match(r"-?0\d", end) for end in (first, last))
    width = max(len(first), len(last)) if padded else 0
    yield from (f"{number:0{width}d}" for number in range(low, high + 1))


def _unbalanced(source: str, position: int) -> ArgumentError:
    return ArgumentError(
        f"pattern {source!r} has an unbalanced {source[position]!r} at position {position}; "
        f"close the braces, or match the character itself with '{REGEX}'"
    )
