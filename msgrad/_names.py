"""The one matcher: patterns over dotted names, and the names nearest to one that matches nothing."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from fnmatch import translate
from itertools import islice
from typing import NamedTuple

from msgrad._errors import ArgumentError, ArgumentTypeError, NoMatchError

REGEX = "re:"
MOST_ALTERNATIVES = 100_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)", re.ASCII)


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
        >>> parse("re:fc[12]").regex.fullmatch("fc2").group()
        'fc2'
    """
    if not isinstance(source, str):
        raise ArgumentTypeError(f"pattern {source!r} is no string; give a name such as 'conv1'")
    negated = source.startswith("!")
    start = 1 if negated else 0
    text = source[start:]
    if text in ("", REGEX) or text.startswith("!"):
        raise ArgumentError(
            f"pattern {source!r} holds no name at position {start}; give a name such as 'conv1'"
        )
    if text.startswith(REGEX):
        return NamePattern(source, negated, (), _regex(source, start + len(REGEX)))
    if text in known:
        return NamePattern(source, negated, (text,), None)
    names = list(islice(_expand(source, start, len(source)), MOST_ALTERNATIVES + 1))
    if len(names) > MOST_ALTERNATIVES:
        raise ArgumentError(
            f"pattern {source!r} expands to more than {MOST_ALTERNATIVES} names; write '*' instead"
        )
    globs = [name for name in names if re.search(r"[*?[]", name)]
    literals = tuple(dict.fromkeys(name for name in names if name not in set(globs)))
    regex = re.compile("|".join(map(translate, globs))) if globs else None
    return NamePattern(source, negated, literals, regex)


def _regex(source: str, start: int) -> re.Pattern[str]:
    try:
        return re.compile(source[start:])
    except re.error as error:
        raise ArgumentError(
            f"pattern {source!r} is no regular expression: {error.msg} at position "
            f"{start + (error.pos or 0)}; escape a literal character with a backslash"
        ) from None


def _expand(source: str, start: int, stop: int) -> Iterator[str]:
    """Expand the braces in `source[start:stop]`, the leftmost first."""
    opening = source.find("{", start, stop)
    stray = source.find("}", start, stop if opening < 0 else opening)
    if stray >= 0:
        raise _unbalanced(source, stray)
    if opening < 0:
        yield source[start:stop]
        return
    bounds = _alternatives(source, opening, stop)
    tails = list(islice(_expand(source, bounds[-1], stop), MOST_ALTERNATIVES + 1))
    for left, right in zip(bounds[:-1], bounds[1:], strict=True):
        for middle in _alternative(source, left, right - 1):
            yield from (source[start:opening] + middle + tail for tail in tails)


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
                f"pattern {source!r} has neither names nor a range of whole numbers in the braces "
                f"at position {start - 1}; write '{{0..5}}' or '{{q,v}}'"
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


class Match(NamedTuple):
    """What one pattern reaches: positions of things, chosen or taken away."""

    pattern: object
    negated: bool
    found: set[int]


class Names:
    """Things that have one or more dotted names each, ready to be matched by many patterns.

    Args:
        items: For each thing its names.
        kind: What the things are called in messages.

    Examples:
        >>> names = Names([["fc.weight"], ["fc.bias"], ["fc2.weight"]])
        >>> sorted(names.found(parse("fc")))
        [0, 1]
    """

    def __init__(self, items: Iterable[Iterable[str]], kind: str = "parameters") -> None:
        self.kind = kind
        self.count = 0
        self.at: dict[str, list[int]] = {}
        self.under: dict[str, list[int]] = {}
        for item, names in enumerate(items):
            self.count += 1
            for name in dict.fromkeys(names):
                self.at.setdefault(name, []).append(item)
                self._add_prefixes(name, item)

    def _add_prefixes(self, name: str, item: int) -> None:
        end = len(name)
        while end > 0:
            self.under.setdefault(name[:end], []).append(item)
            end = name.rfind(".", 0, end)

    def found(self, pattern: NamePattern, *, whole: bool = False) -> set[int]:
        """Return the things that a pattern reaches, its `!` left aside.

        Args:
            pattern: A parsed pattern.
            whole: Count only a match of a whole name; otherwise one of a cell takes all under it.

        Returns:
            Positions of the things, as given.
        """
        table = self.at if whole else self.under
        found: set[int] = set()
        for literal in pattern.literals:
            found.update(table.get(literal, ()))
        if pattern.regex is not None:
            fits = pattern.regex.fullmatch
            for name, items in table.items():
                if fits(name):
                    found.update(items)
        return found

    def no_match(self, pattern: NamePattern, note: str = "") -> NoMatchError:
        """Return the error for a pattern that reaches nothing; it names the nearest names.

        Args:
            pattern: A parsed pattern.
            note: A remedy to give instead of the nearest names.
        """
        near = nearest(_word(pattern), self.under)
        remedy = note or _suggestion(near, list(self.at), self.kind)
        return NoMatchError(
            f"pattern {pattern.source!r} matched none of {self.count} {self.kind}; {remedy}",
            pattern=pattern.source,
            nearest=near,
        )


def last_wins(
    matches: Sequence[Match], count: int, *, missing_ok: bool = False
) -> set[int]:
    """Combine matches in the order given: the last one that reaches a thing decides about it.

    Args:
        matches: For each pattern itself, whether it takes away, and what it reaches.
        count: How many things there are; a list that begins by taking away starts from all.
        missing_ok: Whether a pattern may take nothing away.

    Returns:
        Positions of the chosen things.

    Raises:
        NoMatchError: A pattern takes away what nothing before it chose.

    Examples:
        >>> sorted(last_wins([Match("!b", True, {1})], 3))
        [0, 2]
    """
    chosen = set(range(count)) if matches and matches[0].negated else set()
    for pattern, negated, found in matches:
        if not negated:
            chosen |= found
        elif chosen & found or missing_ok:
            chosen -= found
        else:
            raise NoMatchError(
                f"pattern {getattr(pattern, 'source', pattern)!r} takes away none of {len(chosen)} chosen before it; "
                "put it after the pattern it narrows, or drop it",
                pattern=pattern,
            )
    return chosen


def select_names(names: Iterable[str], *patterns: str, missing_ok: bool = False) -> list[str]:
    """Choose among plain names, where there is no network, only what a file or an optimizer lists.

    Args:
        names: Existing names, each once.
        *patterns: String patterns, see ``select``.
        missing_ok: Whether a pattern may match nothing.

    Returns:
        The chosen names in the order given.

    Raises:
        ArgumentError: A pattern is malformed, or there is none.
        NoMatchError: A pattern matches nothing.

    Examples:
        >>> select_names(["fc1.weight", "fc1.bias", "fc2.weight"], "fc1", "!*.bias")
        ['fc1.weight']
    """
    known = list(names)
    index = Names(([name] for name in known), "names")
    parsed = [parse(pattern, index.under) for pattern in patterns]
    if not parsed:
        raise ArgumentError("patterns () are empty; give at least one, '*' for everything")
    matches = []
    for pattern in parsed:
        found = index.found(pattern)
        if not found and not missing_ok:
            raise index.no_match(pattern)
        matches.append(Match(pattern.source, pattern.negated, found))
    return [known[item] for item in sorted(last_wins(matches, index.count, missing_ok=missing_ok))]


def nearest(word: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names most like a word, best first; none where nothing is like it.

    Args:
        word: What was written.
        names: What exists.
        most: How many names to return at most.

    Returns:
        Names that differ in case, in a few letters, or by the path in front of them.

    Examples:
        >>> nearest("0.wieght", ["0.weight", "0.bias", "2.weight"])
        ['0.weight']
    """
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(name.casefold(), name)
    word = word.casefold()
    close = get_close_matches(word, folded, n=most)
    ratios = [SequenceMatcher(None, name, word).ratio() for name in close]
    alike = [name for name, ratio in zip(close, ratios, strict=True) if ratio > ratios[0] - 0.1]
    tails = (name for name in folded if word and name.endswith("." + word))
    inside = (name for name in folded if len(word) > 2 and word in name)
    ranked = alike or [*islice(tails, most)] or [*islice(inside, most)]
    return [folded[name] for name in ranked]


def _word(pattern: NamePattern) -> str:
    """Return the text to compare with names: the first alternative, without wildcards."""
    if pattern.literals:
        return pattern.literals[0]
    text = pattern.source.removeprefix("!").removeprefix(REGEX)
    return re.sub(r"[*?\\^$()\[\]{}]", "", text)


def _suggestion(near: Sequence[str], names: Sequence[str], kind: str) -> str:
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    if not names:
        return f"there are no {kind} to choose from"
    return f"the first {kind} are {', '.join(map(repr, names[:3]))}"
