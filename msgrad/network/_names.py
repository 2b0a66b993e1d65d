"""The one matcher: which of many dotted names a pattern reaches, and which ones it nearly does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import chain, compress
from typing import NamedTuple

from msgrad.errors import ArgumentError, NoMatchError
from msgrad.network._pattern import NamePattern, parse

ALIKE = 0.6
_TRIED = 100
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

    def __init__(self, items: Iterable[Sequence[str]], kind: str = "parameters") -> None:
        self.kind = kind
        self.count = 0
        self.at: dict[str, tuple[int, ...]] = {}
        # The paths right inside each cell; "" is the network.
        self._inside: dict[str, list[str]] = {"": []}
        for item, names in enumerate(items):
            self.count += 1
            for name in dict.fromkeys(names) if len(names) > 1 else names:
                if name in self.at:
                    self.at[name] += (item,)
                    continue
                if name not in self._inside:
                    self._link(name)
                self.at[name] = (item,)

    def _link(self, path: str) -> None:
        inside, parent = self._inside, path.rpartition(".")[0]
        while parent not in inside:
            inside[parent] = [path]
            if parent in self.at:
                return
            path, parent = parent, parent.rpartition(".")[0]
        inside[parent].append(path)

    def __contains__(self, path: str) -> bool:
        return path in self.at or path in self._inside

    def paths(self) -> Iterator[str]:
        """Return every path, each cell before what is inside: cells, and names that lie in them."""
        waiting = self._inside[""][::-1]
        while waiting:
            path = waiting.pop()
            yield path
            if path in self._inside:
                waiting.extend(reversed(self._inside[path]))

    def found(self, pattern: NamePattern, *, whole: bool = False) -> set[int]:
        """Return the things that a pattern reaches, its `!` left aside.

        Args:
            pattern: A parsed pattern.
            whole: Count only a match of a whole name; otherwise one of a cell takes all under it.

        Returns:
            Positions of the things, as given.
        """
        if pattern.regex is None:
            found = set(self.at.get(pattern.literal, ()))
            cells = {pattern.literal} & self._inside.keys()
        else:
            # nothing here is a loop in Python: that took twice as long with 100,000 names
            fits = pattern.regex.fullmatch
            found = set(chain.from_iterable(compress(self.at.values(), map(fits, self.at))))
            cells = set() if whole else set(filter(fits, self._inside)) - {""}
        return found if whole else found.union(chain.from_iterable(self._items_in(cells)))

    def _items_in(self, cells: set[str]) -> list[tuple[int, ...]]:
        """Return the things whose names lie in cells."""
        waiting, opened, inside = list(cells), cells, self._inside
        found: list[str] = []
        for cell in waiting:
            paths = inside[cell]
            found += paths
            more = (inside.keys() & paths) - opened
            opened |= more
            waiting += more
        return [self.at[path] for path in found if path in self.at]

    def no_match(self, pattern: NamePattern, remedy: str = "") -> NoMatchError:
        """Return the error for a pattern that reaches nothing.

        Args:
            pattern: A parsed pattern.
            remedy: What to do; without it the message gives the nearest names.
        """
        near = nearest(pattern.word, self.paths())
        if sum(path.endswith(f".{pattern.word}") for path in self.paths()) > 1:
            # in every block there is one
            near = [f"*.{pattern.word}", *near[:2]]
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
    for pattern in [parse(pattern, index) for pattern in patterns]:
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
    """Return the names of about the best likeness, equal ones in the order given."""
    matcher = SequenceMatcher(b=word)

    def bound(name: str) -> float:
        matcher.set_seq1(name.casefold())
        return matcher.quick_ratio() if matcher.real_quick_ratio() >= ALIKE else 0.0

    # The ratio itself is a hundred times as slow as its upper bound.
    ratios: dict[str, float] = {}
    for name in nlargest(_TRIED, names, key=bound):
        matcher.set_seq1(name.casefold())
        ratios[name] = matcher.ratio()
    least = max(ALIKE, max(ratios.values(), default=0.0) - 0.1)
    likely = [name for name, ratio in ratios.items() if ratio >= least]
    return sorted(likely, key=ratios.__getitem__, reverse=True)


def _suggestion(near: Sequence[str], names: Sequence[str], kind: str) -> str:
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    if not names:
        return f"there are no {kind} to choose from"
    return f"the first {kind} are {', '.join(map(repr, names[:3]))}"
