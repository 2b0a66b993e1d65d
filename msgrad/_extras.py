"""Optional packages: imported when needed; a missing one is answered by the install line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from msgrad._files import write_whole
from msgrad.errors import ArgumentError, MissingPackageError


def needed(module: str, purpose: str, install: str = "msgrad[tools]") -> Any:
    """Import a module of an optional package.

    Args:
        module: Its dotted name.
        purpose: What it is needed for, as the subject of the message.
        install: What pip installs to get it.

    Returns:
        The module.

    Raises:
        MissingPackageError: The package is not installed; the message says how to install it.

    Examples:
        >>> needed("json", "a table").dumps({})
        '{}'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(
            f"{purpose} needs {package}, which is not installed; pip install '{install}'",
            name=error.name,
        ) from error


def save_figure(figure: Any, path: str | Path) -> None:
    """Write a figure of matplotlib as PNG or SVG, the same bytes for the same figure.

    Raises:
        ArgumentError: The file has another ending.
        CheckpointError: It cannot be written.
    """
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in ("png", "svg"):
        raise ArgumentError(f"path {str(path)!r} is no .png and no .svg; give one of these endings")
    write_whole(path, lambda part: draw_figure(figure, part, kind), kind)


def draw_figure(figure: Any, target: Any, kind: str) -> None:
    """Draw a figure into a path or an open file."""
    # without them an SVG holds the time, and other ids at each run
    with needed("matplotlib", "a plot").rc_context({"svg.hashsalt": "msgrad"}):
        fixed = {"Date": None} if kind == "svg" else {}
        figure.savefig(target, format=kind, dpi=130, metadata=fixed)
