"""Files that are written whole or not at all, and what a program says as JSON."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgrad.errors import CheckpointError


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], object], ending: str) -> None:
    """Let a file be written beside the path, then rename it; missing folders are made.

    Raises:
        CheckpointError: The file cannot be written.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            part = Path(folder) / f"part.{ending}"
            write(part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(part, target)
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"path {str(target)!r} cannot be written: {first_line(error)}"
        ) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file whole or not at all, as `write_whole` does."""
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"), "txt")


def as_json(content: Any, path: str | os.PathLike[str] | None = None) -> str:
    """Return content as JSON, and write it to a file where a path is given.

    JSON has no NaN and no infinity: they become the texts "nan" and "inf".

    Examples:
        >>> as_json([1.0, float("nan")]).split()
        ['[', '1.0,', '"nan"', ']']
    """
    text = json.dumps(plain(content), indent=2, allow_nan=False)
    if path is not None:
        write_text(path, text + "\n")
    return text


def plain(value: Any) -> Any:
    """Return a value with dicts and lists for what only Python has, and numbers that JSON has."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return str(error).strip().split("\n")[0]
