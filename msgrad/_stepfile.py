"""A checkpoint file that is whole or not there: named values and a description."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from msgrad._errors import CheckpointError
from msgrad._weights import copy_of

_META = "msgrad.meta"
_FORMAT = 1


def write_file(
    path: str | os.PathLike[str], values: Mapping[str, Tensor], meta: Mapping[str, Any]
) -> None:
    """Write named values and a description, as a checkpoint that is either whole or not there.

    Raises:
        CheckpointError: The file cannot be written.
    """
    # a value without elements is dropped by save_checkpoint without a word
    values = {name: value for name, value in values.items() if value.size}
    described = {"format": _FORMAT, "values": list(values), **meta}
    # as bytes: a string in append_dict does not survive in every format
    text = np.frombuffer(json.dumps(described).encode(), np.uint8).copy()
    write_values(path, {**values, _META: Tensor(text)})


def write_values(
    path: str | os.PathLike[str],
    values: Mapping[str, Tensor],
    kind: Literal["ckpt", "safetensors"] = "ckpt",
) -> None:
    """Write a checkpoint of MindSpore that is either whole or not there.

    Raises:
        CheckpointError: The file cannot be written.
    """
    entries = [
        {"name": name, "data": Tensor(copy_of(value), value.dtype)}
        for name, value in values.items()
    ]
    write_whole(path, lambda part: ms.save_checkpoint(entries, str(part), format=kind), kind)


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
            f"path {str(target)!r} cannot be written: {_first_line(error)}"
        ) from error


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Parameter], dict[str, Any]]:
    """Read a file of `write_file`.

    Raises:
        CheckpointError: There is no such file, it is damaged, or something else wrote it.
    """
    target = Path(path)
    if not target.is_file():
        raise CheckpointError(f"path {str(target)!r} is no file; give what TrainStep.save wrote")
    with tempfile.TemporaryDirectory() as folder:
        # load_checkpoint wants the ending
        link = Path(folder) / "part.ckpt"
        link.symlink_to(target.resolve())
        try:
            values = ms.load_checkpoint(str(link))
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"path {str(target)!r} is damaged or no checkpoint: {_first_line(error)}"
            ) from error
    meta = take_meta(path, values)
    if meta is None:
        raise CheckpointError(
            f"path {str(target)!r} is a checkpoint that TrainStep.save did not write; load it with "
            "msgrad.load_weights"
        )
    return values, meta


def take_meta(path: str | os.PathLike[str], values: dict[str, Any]) -> dict[str, Any] | None:
    """Take the description out of the values of a file; None where `write_file` did not write it.

    Raises:
        CheckpointError: Values that it names are missing, or a later msgrad wrote it.
    """
    target = Path(path)
    text = values.pop(_META, None)
    if text is None:
        return None
    try:
        meta = json.loads(text.asnumpy().tobytes().decode())
        later, names = meta["format"] > _FORMAT, meta["values"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"path {str(target)!r} is damaged: its description cannot be read; give another file"
        ) from error
    if later:
        raise CheckpointError(
            f"path {str(target)!r} was written by a later msgrad; install that one"
        )
    lost = [name for name in names if name not in values]
    if lost:
        raise CheckpointError(
            f"path {str(target)!r} is damaged: {len(lost)} values are missing, {lost[0]!r} first"
        )
    return meta


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]
