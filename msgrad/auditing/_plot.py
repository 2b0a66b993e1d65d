"""An audit as a picture: gradient and change of each layer, what is held seen at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgrad._extras import needed, save_figure
from msgrad._text import count, shortened
from msgrad.auditing._rows import BESIDE, GOOD, VERDICTS, Audited, AuditRow, counted


@dataclass(frozen=True)
class Layer:
    """One line of a picture.

    Attributes:
        label: The path of the cell, or of the first and the last of several.
        state: "held", "trained", "part held", or the worst verdict.
        gradient: Norm of the gradient over all its weights; None where there is none.
        change: Largest change of an element of its weights.
        moved: Whether a bit of its weights differs.
    """

    label: str
    state: str
    gradient: float | None
    change: float
    moved: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.state in (*GOOD, "part held")


def layers_of_rows(rows: Sequence[AuditRow], most: int) -> list[Layer]:
    """Group parameters by the cells that own them, by fewer and larger cells where those are many.

    Args:
        rows: What was found, in network order.
        most: The number of layers not to be exceeded.

    Returns:
        The layers in network order. Running statistics count only where nothing else is there, or
        where something is wrong with them.
    """
    by_name = {row.name: row for row in rows}
    owners = {name: name.rpartition(".")[0] or name for name in by_name}
    return [
        _layer(label, [by_name[name] for name in names])
        for label, names in grouped(owners, most).items()
    ]


def grouped(owners: Mapping[str, str], most: int) -> dict[str, list[str]]:
    """Group things by the cells that own them, or by larger cells around those.

    Args:
        owners: The path of the cell that owns each thing, in network order.
        most: The number of groups not to be exceeded; cells side by side are joined at last.

    Returns:
        The things of each group by its label, in network order.

    Examples:
        >>> grouped({"a.0.w": "a.0", "a.0.b": "a.0", "a.1.w": "a.1"}, 1)
        {'a': ['a.0.w', 'a.0.b', 'a.1.w']}
    """
    deepest = max((owner.count(".") for owner in owners.values()), default=0)
    groups: dict[str, list[str]] = {}
    for depth in range(deepest + 1, 0, -1):
        groups = {}
        for name, owner in owners.items():
            groups.setdefault(".".join(owner.split(".")[:depth]), []).append(name)
        if len(groups) <= most:
            return groups
    found = list(groups.items())
    size = math.ceil(len(found) / most)
    return dict(_joined(found[start : start + size]) for start in range(0, len(found), size))


def _joined(groups: Sequence[tuple[str, list[str]]]) -> tuple[str, list[str]]:
    first, last = groups[0][0], groups[-1][0]
    label = first if first == last else f"{first} … {last}"
    return label, [name for _, inside in groups for name in inside]


def _layer(label: str, rows: Sequence[AuditRow]) -> Layer:
    shown = [r for r in rows if r.rule not in BESIDE or not r.ok] or rows
    gradients = [row.gradient for row in shown if row.gradient is not None]
    return Layer(
        label,
        _state(shown),
        math.hypot(*gradients) if gradients else None,
        _largest([row.max_change for row in shown]),
        any(row.bits_changed for row in shown),
    )


def _state(rows: Sequence[AuditRow]) -> str:
    verdicts = {row.verdict for row in rows}
    worst = min(verdicts, key=VERDICTS.index)
    return "part held" if worst == "trained" and "held" in verdicts else worst


def _largest(changes: Sequence[float]) -> float:
    broken = [change for change in changes if not math.isfinite(change)]
    return broken[0] if broken else max(changes)


# Okabe and Ito's colours, which all kinds of colour vision tell apart; each also has a mark and a
# word of its own, so that a print in grey is read as well.
_COLOURS = {"trained": "#0072B2", "held": "#595959", "part held": "#009E73", "wrong": "#D55E00"}
_MARKS = {"trained": "o", "held": "s", "part held": "D", "wrong": "X"}
_BAND = "#D9D9D9"
MOST_LAYERS = 64
LONGEST_LABEL = 44
LINE = 0.22  # inches, for labels of 8 points
_PANELS = ("norm of the gradient", "largest change of an element")


def plot_audit(audit: Audited, path: str | Path) -> None:
    """Draw gradient and change of each layer, held layers on grey, problems named.

    Layers stand from top to bottom in network order; where there are more than 64, cells are drawn
    as wholes. Both axes are logarithmic: what is 0 stands at their left end, what is not known is
    missing.

    Args:
        audit: What was found.
        path: File to write, ``.png`` or ``.svg``; its folder is made.

    Raises:
        ArgumentError: The file has another ending.
        MissingPackageError: matplotlib is not installed.
    """
    save_figure(draw_audit(audit), path)


def draw_audit(audit: Audited) -> Any:
    """Return the picture as a figure of matplotlib."""
    figure_module = needed("matplotlib.figure", "a plot")
    layers = layers_of_rows(audit.rows, MOST_LAYERS)
    height = 1.9 + LINE * max(len(layers), 4)
    figure = figure_module.Figure(figsize=(11, height), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, layers, [layer.gradient for layer in layers], _PANELS[0])
    _draw(right, layers, [layer.change for layer in layers], _PANELS[1])
    _name_lines(left, right, layers)
    figure.suptitle(_title(audit), fontsize=11)
    _legend(figure, left, layers)
    return figure


def _kind(layer: Layer) -> str:
    return layer.state if layer.ok else "wrong"


def _draw(axes: Any, layers: Sequence[Layer], values: Sequence[float | None], title: str) -> None:
    """Draw one panel: a line and a mark for each layer."""
    limits = _decades([v for v in values if v is not None and math.isfinite(v) and v > 0.0])
    axes.set_xscale("log")
    axes.set_xlim(limits)
    for line, (layer, value) in enumerate(zip(layers, values, strict=True)):
        if layer.state == "held":
            axes.axhspan(line - 0.5, line + 0.5, color=_BAND, linewidth=0, zorder=0)
        if value is None:
            continue
        _mark(axes, line, value, _kind(layer), limits[0])
    axes.set_title(title, fontsize=10)
    axes.grid(axis="x", linewidth=0.4, color="#BBBBBB")
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=8)
    axes.minorticks_off()


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return whole powers of ten around the values, none of which stands at the left end."""
    if not values:
        return 0.1, 1.0
    ends = math.log10(min(values)) - 0.15, math.log10(max(values)) + 0.15
    # a float64 has no power of ten outside of these
    return 10.0 ** max(math.floor(ends[0]), -307), 10.0 ** min(math.ceil(ends[1]), 308)


def _mark(axes: Any, line: int, value: float, kind: str, low: float) -> None:
    colour = _COLOURS[kind]
    if not math.isfinite(value):
        text = f" {value}"
        axes.text(low, line, text, color=colour, fontsize=8, va="center", weight="bold")
        return
    end = max(value, low)
    axes.hlines(line, low, end, color=colour, linewidth=1.4, zorder=2)
    # a hollow mark at the end of the axis is a zero
    fill = colour if value > 0.0 else "white"
    axes.plot(
        end, line, _MARKS[kind], color=colour, markerfacecolor=fill, markersize=5.5,
        clip_on=False, zorder=3,
    )  # fmt: skip


def _name_lines(left: Any, right: Any, layers: Sequence[Layer]) -> None:
    """Write the layers at the left, their states at the right."""
    lines = range(len(layers))
    left.set_yticks(lines, [shortened(layer.label, LONGEST_LABEL) for layer in layers], fontsize=8)
    # both panels share this axis
    left.set_ylim(max(len(layers), 1) - 0.5, -0.5)
    left.tick_params(axis="y", length=0)
    right.tick_params(axis="y", length=0)
    states = right.secondary_yaxis("right")
    states.set_yticks(lines, [layer.state for layer in layers], fontsize=8)
    states.tick_params(axis="y", length=0)
    for text, layer in zip(states.get_yticklabels(), layers, strict=True):
        text.set_color(_COLOURS[_kind(layer)])
        text.set_weight("normal" if layer.state == "trained" else "bold")
    for text, layer in zip(left.get_yticklabels(), layers, strict=True):
        text.set_weight("normal" if layer.ok else "bold")


def _legend(figure: Any, axes: Any, layers: Sequence[Layer]) -> None:
    words = {"wrong": "a problem", "part held": "held in part"}
    there = [kind for kind in _COLOURS if any(_kind(layer) == kind for layer in layers)]
    marks = [
        axes.plot([], [], _MARKS[k], color=_COLOURS[k], label=words.get(k, k))[0] for k in there
    ]
    marks += axes.plot([], [], "o", color="black", markerfacecolor="white", label="zero")
    figure.legend(
        handles=marks, loc="outside lower center", ncols=len(marks), fontsize=8, frameon=False
    )


def _title(audit: Audited) -> str:
    return f"audit of {count(audit.steps, 'step')}: {counted(audit.rows)}"
