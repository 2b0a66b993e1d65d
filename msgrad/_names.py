"""The one matcher: which of many dotted names a pattern reaches, and which ones it nearly does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from msgrad._errors import ArgumentError, NoMatchError
from msgrad._pattern import REGEX, NamePattern, parse

ALIKE = 0.6
NO_PATTERNS = "patterns () are empty; give at least one, '*' for everything"


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
                self._add(name, item)

    def _add(self, name: str, item: int) -> None:
        self.at.setdefault(name, []).append(item)
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

    def no_match(self, pattern: NamePattern, remedy: str = "") -> NoMatchError:
        """Return the error for a pattern that reaches nothing.

        Args:
            pattern: A parsed pattern.
            remedy: What to do; without it the message gives the nearest names.
        """
        near = nearest(_word(pattern), self.under)
        remedy = remedy or _suggestion(near, list(self.at), self.kind)
        return NoMatchError(
            f"pattern {pattern!r} matched none of {self.count} {self.kind}; {remedy}",
            pattern=pattern.source,
            nearest=near,
        )


def last_wins(matches: Sequence[Match], count: int, *, missing_ok: bool = False) -> set[int]:
    """Combine matches in the order given: the last one that reaches a thing decides about it.

    Args:
        matches: What each pattern reaches.
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
                f"pattern {pattern!r} takes away none of the {len(chosen)} chosen before it; "
                "put it behind the pattern that it narrows, or drop it",
                pattern=getattr(pattern, "source", pattern),
            )
    return chosen


def select_names(names: Iterable[str], *patterns: str, missing_ok: bool = False) -> list[str]:
    """Choose among plain names, where there is no network but a file or an optimizer.

    Args:
        names: Existing names, each once.
        *patterns: String patterns, see ``select``.
        missing_ok: Whether a pattern may match nothing.

    Returns:
        The chosen names in the order given.

    Raises:
        ArgumentError: A pattern is malformed, or there is none.
        NoMatchError: A pattern matches nothing, or takes nothing away.

    Examples:
        >>> select_names(["fc1.weight", "fc1.bias", "fc2.weight"], "fc1", "!*.bias")
        ['fc1.weight']
    """
    existing = list(names)
    index = Names(([name] for name in existing), "names")
    if not patterns:
        raise ArgumentError(NO_PATTERNS)
    matches = []
    for pattern in [parse(pattern, index.under) for pattern in patterns]:
        found = index.found(pattern)
        if not found and not missing_ok:
            raise index.no_match(pattern)
        matches.append(Match(pattern, pattern.negated, found))
    return [
        existing[item] for item in sorted(last_wins(matches, index.count, missing_ok=missing_ok))
    ]


def nearest(word: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return the names most like a word, best first; none where nothing is like it.

    Args:
        word: What was written.
        names: What exists.
        most: How many names to return at most.

    Returns:
        Names that differ in case, lack the path in front, hold the word or misspell it.

    Examples:
        >>> nearest("0.wieght", ["0.weight", "0.bias", "2.weight"])
        ['0.weight']
    """
    names, word = list(names), word.strip(".").casefold()
    last = {name.rpartition(".")[2]: name for name in reversed(names)}
    tails = [name for name in names if f".{name}".casefold().endswith(f".{word}")]
    return (
        tails[:most]
        or _alike(word, names)[:most]
        or [name for name in names if len(word) > 2 and word in name.casefold()][:most]
        or [last[end] for end in _alike(word.rpartition(".")[2], last)][:most]
    )


def _alike(word: str, names: Iterable[str]) -> list[str]:
    """Return the names of about the best likeness, in order; `get_close_matches` is not stable."""
    matcher = SequenceMatcher(b=word)
    ratios: dict[str, float] = {}
    for name in names:
        matcher.set_seq1(name.casefold())
        if matcher.real_quick_ratio() >= ALIKE and matcher.quick_ratio() >= ALIKE:
            ratios[name] = matcher.ratio()
    best = max(ratios.values(), default=0.0)
    likely = [name for name, ratio in ratios.items() if ratio >= max(ALIKE, best - 0.1)]
    return sorted(likely, key=ratios.__getitem__, reverse=True)


def _word(pattern: NamePattern) -> str:
    """Return the text to compare with names: the first alternative, or what is no sign."""
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
