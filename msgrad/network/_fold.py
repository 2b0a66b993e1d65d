"""Folding: many names written as few patterns, the inverse of the braces of a pattern."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

_NUMBER = re.compile(r"([0-9]+)")
_SIGNS = re.compile(r"[*?\[\]{}!]|^re:")
# For each place of a number the numbers that stand there, as texts.
_Box: TypeAlias = "tuple[tuple[str, ...], ...]"


def fold(names: Iterable[str]) -> dict[str, list[str]]:
    """Write names that differ in numbers only as patterns with braces.

    A pattern stands for its names and for no other: numbers are folded where every combination of
    them is there.

    Args:
        names: Dotted names, each once.

    Returns:
        Each pattern with its names, in the order of their first names.

    Examples:
        >>> list(fold(["layers.0.w", "layers.1.w", "layers.2.w", "head.w"]))
        ['layers.{0..2}.w', 'head.w']
    """
    names = list(names)
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    pattern_of: dict[str, str] = {}
    for name in names:
        pieces = _NUMBER.split(name)
        if len(pieces) == 1 or _SIGNS.search(name):
            pattern_of[name] = name
        else:
            groups.setdefault(tuple(pieces[::2]), []).append(tuple(pieces[1::2]))
    for texts, numbers in groups.items():
        for box in _fewest(numbers):
            pattern = _joined(texts, [_braces(axis) for axis in box])
            pattern_of.update((name, pattern) for name in _names_of(texts, box))
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(pattern_of[name], []).append(name)
    return folded


def fold_cells(kinds: Mapping[str, Hashable]) -> dict[str, list[str]]:
    """Write names of one kind as few patterns, where a whole cell is of that kind as its path.

    Args:
        kinds: Every name of a network, in order, and its kind.

    Returns:
        Each pattern with its names, in the order of their first names.

    Examples:
        >>> fold_cells({"body.0.w": 1, "body.1.w": 1, "head.w": 1, "head.b": 2})
        {'body': ['body.0.w', 'body.1.w'], 'head.w': ['head.w'], 'head.b': ['head.b']}
    """
    inside: dict[str, set[Hashable]] = {}
    for name, kind in kinds.items():
        for cell in _ways_to(name):
            inside.setdefault(cell, set()).add(kind)
    members: dict[Hashable, dict[str, list[str]]] = {}
    for name, kind in kinds.items():
        whole = next((cell for cell in _ways_to(name) if len(inside[cell]) == 1), name)
        members.setdefault(kind, {}).setdefault(whole, []).append(name)
    folded = {
        pattern: [name for whole in wholes for name in of_kind[whole]]
        for of_kind in members.values()
        for pattern, wholes in fold(of_kind).items()
    }
    order = {name: position for position, name in enumerate(kinds)}
    return dict(sorted(folded.items(), key=lambda item: order[item[1][0]]))


def _ways_to(name: str) -> Iterable[str]:
    """Return the paths of the cells that a name lies in, the outermost first, and the name."""
    segments = name.split(".")
    return (".".join(segments[:end]) for end in range(1, len(segments) + 1))


def _fewest(numbers: Sequence[tuple[str, ...]]) -> list[_Box]:
    """Cover tuples of numbers with boxes that hold nothing else, by joining along each axis."""
    axes = range(len(numbers[0]))
    return min((_merged(numbers, order) for order in (axes, axes[::-1])), key=len)


def _merged(numbers: Sequence[tuple[str, ...]], order: Iterable[int]) -> list[_Box]:
    boxes: list[_Box] = [tuple((number,) for number in item) for item in numbers]
    for axis in order:
        alike: dict[_Box, list[str]] = {}
        for box in boxes:
            alike.setdefault(box[:axis] + box[axis + 1 :], []).extend(box[axis])
        boxes = [
            (*rest[:axis], tuple(sorted(values, key=_by_value)), *rest[axis:])
            for rest, values in alike.items()
        ]
    return boxes


def _by_value(number: str) -> tuple[int, int]:
    return int(number), len(number)


def _names_of(texts: Sequence[str], box: _Box) -> list[str]:
    found: list[list[str]] = [[]]
    for axis in box:
        found = [[*numbers, number] for numbers in found for number in axis]
    return [_joined(texts, numbers) for numbers in found]


def _joined(texts: Sequence[str], numbers: Sequence[str]) -> str:
    between = [*numbers, ""]
    return "".join(text + number for text, number in zip(texts, between, strict=True))


def _braces(numbers: Sequence[str]) -> str:
    """Write numbers, sorted, as ranges and single ones: three or more in a row are a range."""
    runs: list[list[str]] = []
    for number in numbers:
        if runs and number == _after(runs[-1]):
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs]
    return parts[0] if len(numbers) == 1 else "{" + ",".join(parts) + "}"


def _after(run: Sequence[str]) -> str:
    """Return the number that goes on a run as a range would: padded if its first one is."""
    first = run[0]
    width = len(first) if first.startswith("0") and len(first) > 1 else 0
    following = f"{int(run[-1]) + 1:0{width}d}"
    return "" if width and len(following) > width else following
