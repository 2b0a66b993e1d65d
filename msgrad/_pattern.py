"""A string pattern, parsed: its `!`, its braces, its shell signs or its regular expression."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from fnmatch import translate
from itertools import islice, pairwise

from msgrad._errors import ArgumentError, ArgumentTypeError

REGEX = "re:"
MOST_ALTERNATIVES = 100_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)", re.ASCII)
_SHELL_SIGN = re.compile(r"[*?[]")


@dataclass(frozen=True)
class NamePattern:
    """A parsed string pattern: names to look up, and a regular expression for the rest.

    Examples:
        >>> parse("!layers.{0..1}").literals
        ('layers.0', 'layers.1')
    """

    source: str
    negated: bool
    literals: tuple[str, ...]
    regex: re.Pattern[str] | None

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
    start = 1 if source.startswith("!") else 0
    text = source[start:]
    if text in ("", REGEX) or text.startswith("!"):
        raise ArgumentError(
            f"pattern {source!r} has no name at position {start}; give a name such as 'conv1'"
        )
    if text.startswith(REGEX):
        return NamePattern(source, start == 1, (), _regex(source, start + len(REGEX)))
    if text in known:
        return NamePattern(source, start == 1, (text,), None)
    names = dict.fromkeys(_expand(source, start, len(source)))
    globs = [name for name in names if _SHELL_SIGN.search(name)]
    literals = tuple(name for name in names if not _SHELL_SIGN.search(name))
    regex = re.compile("|".join(map(translate, globs))) if globs else None
    return NamePattern(source, start == 1, literals, regex)


def _regex(source: str, start: int) -> re.Pattern[str]:
    try:
        return re.compile(source[start:])
    except (re.error, OverflowError, RecursionError) as error:
        position = start + (getattr(error, "pos", None) or 0)
        raise ArgumentError(
            f"pattern {source!r} is no regular expression: {getattr(error, 'msg', error)} at "
            f"position {position}; put a backslash before what is meant literally"
        ) from None


def _expand(source: str, start: int, stop: int) -> list[str]:
    """Expand the braces in `source[start:stop]`."""
    opening = source.find("{", start, stop)
    stray = source.find("}", start, stop if opening < 0 else opening)
    if stray >= 0:
        raise _unbalanced(source, stray)
    if opening < 0:
        return [source[start:stop]]
    bounds = _alternatives(source, opening, stop)
    middles = (
        middle
        for left, right in pairwise(bounds)
        for middle in _alternative(source, left, right - 1)
    )
    tails = _expand(source, bounds[-1], stop)
    head = source[start:opening]
    names = [*islice((head + m + t for m in middles for t in tails), MOST_ALTERNATIVES + 1)]
    if len(names) > MOST_ALTERNATIVES:
        raise ArgumentError(
            f"pattern {source!r} expands to more than {MOST_ALTERNATIVES} names from position "
            f"{opening} on; write '*' there"
        )
    return names


def _alternatives(source: str, opening: int, stop: int) -> list[int]:
    """Return where each alternative begins, and last where the text after the braces begins."""
    depth, bounds = 0, [opening + 1]
    for position in range(opening, stop):
        character = source[position]
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return [*bounds, position + 1]
        if character == "," and depth == 1:
            bounds.append(position + 1)
    raise _unbalanced(source, opening)


def _alternative(source: str, start: int, stop: int) -> Iterator[str]:
    bounds = _RANGE.fullmatch(source, start, stop)
    if bounds:
        yield from _numbers(*bounds.groups())
        return
    for text in _expand(source, start, stop):
        if ".." in text or source[start - 1 : stop + 1] == "{}":
            raise ArgumentError(
                f"pattern {source!r} has no names and no range of whole numbers in the braces at "
                f"position {start - 1}; write '{{q,v}}' or '{{0..5}}'"
            )
        yield text


def _numbers(first: str, last: str) -> Iterator[str]:
    padded = any(re.match(r"-?0\d", bound) for bound in (first, last))
    width = max(len(first), len(last)) if padded else 0
    step = 1 if int(first) <= int(last) else -1
    for number in range(int(first), int(last) + step, step):
        yield f"{number:0{width}d}"


def _unbalanced(source: str, position: int) -> ArgumentError:
    return ArgumentError(
        f"pattern {source!r} has an unbalanced {source[position]!r} at position {position}; "
        f"close the braces, or match the character itself with '{REGEX}'"
    )
