"""The records of a monitor as a picture: layers from top to bottom, steps from left to right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msgrad._extras import needed, save_figure
from msgrad._text import shortened
from msgrad.auditing._plot import LINE, LONGEST_LABEL, MOST_LAYERS, grouped
from msgrad.auditing._record import LayerRecord
from msgrad.errors import ArgumentError


def plot_records(records: Sequence[LayerRecord], path: str | Path) -> None:
    """Draw the records; what is 0 or not known is hatched, so that what is held is seen at once.

    Raises:
        ArgumentError: The file has another ending than .png or .svg, or there is no record.
        MissingPackageError: matplotlib is not installed.
    """
    save_figure(draw_records(records), path)


def draw_records(records: Sequence[LayerRecord]) -> Any:
    """Return the picture as a figure of matplotlib.

    Raises:
        ArgumentError: There is no record.
    """
    if not records:
        raise ArgumentError("the monitor has 0 records; train on, or give a smaller every=")
    figure_module = needed("matplotlib.figure", "a plot")
    steps = sorted({record.step for record in records})
    layers = grouped({r.layer: r.layer for r in records}, MOST_LAYERS)
    shown = _panels(records, steps, layers)
    height = 2.2 + LINE * max(len(layers), 4)
    figure = figure_module.Figure(figsize=(15, height), layout="constrained")
    axes = figure.subplots(1, len(shown), sharey=True)
    for panel, (title, values) in zip(axes, shown.items(), strict=True):
        _draw(figure, panel, values, title, steps)
    labels = [shortened(label, LONGEST_LABEL) for label in layers]
    axes[0].set_yticks(range(len(layers)), labels, fontsize=8)
    figure.suptitle(f"{len(layers)} layers, steps {steps[0]} to {steps[-1]}", fontsize=11)
    figure.supxlabel("step; hatched: 0, or not known", fontsize=9)
    return figure


def _panels(
    records: Sequence[LayerRecord], steps: Sequence[int], layers: Mapping[str, Sequence[str]]
) -> dict[str, np.ndarray]:
    """Return what each panel shows, a row for each layer and a column for each step."""
    line = {name: row for row, names in enumerate(layers.values()) for name in names}
    column = {step: number for number, step in enumerate(steps)}

    def summed(figure: str) -> np.ndarray:
        values = np.zeros((len(layers), len(steps)))
        for record in records:
            place = line[record.layer], column[record.step]
            # several layers may share a row
            values[place] = math.hypot(values[place], getattr(record, figure) or 0.0)
        return values

    weight = summed("weight")
    ratio = np.divide(summed("update"), weight, out=np.zeros_like(weight), where=weight > 0.0)
    return {
        "change since the start": summed("since_start"),
        "change since the last record": summed("since_last"),
        "update to weight": ratio,
        "gradient": summed("gradient"),
    }


def _draw(figure: Any, axes: Any, values: np.ndarray, title: str, steps: Sequence[int]) -> None:
    colors = needed("matplotlib.colors", "a plot")
    # cividis looks the same to all kinds of colour vision, and gets lighter all the way
    cividis = needed("matplotlib", "a plot").colormaps["cividis"]
    colour_map = cividis.with_extremes(bad=(1.0, 1.0, 1.0, 0.0))
    axes.patch.set(facecolor="white", hatch="////", edgecolor="#BBBBBB")
    seen = np.isfinite(values) & (values > 0.0)
    low, high = (values[seen].min(), values[seen].max()) if seen.any() else (0.1, 1.0)
    norm = colors.LogNorm(low, high if high > low else low * 10.0)
    masked = np.ma.masked_where(~seen, values)
    image = axes.imshow(masked, cmap=colour_map, norm=norm, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=10)
    places = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 5)).astype(int))
    axes.set_xticks(places, [str(steps[place]) for place in places], fontsize=8)
    axes.tick_params(axis="y", length=0)
    # shares of the height, so that they are as high in a small picture as in a large one
    height = figure.get_size_inches()[1]
    bar = figure.colorbar(
        image, ax=axes, location="bottom", fraction=0.3 / height, pad=0.15 / height, aspect=30
    )
    bar.ax.tick_params(labelsize=8)
    bar.ax.minorticks_off()
