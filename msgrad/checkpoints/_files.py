"""A checkpoint file that is whole or not there: named values and a description."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import mindspore as ms
import numpy as np
from mindspore import Tensor

from msgrad._files import write_whole
from msgrad.errors import CheckpointError
from msgrad.network import copy_of
from msgrad.optim import owner_of

_META = "msgrad.meta"
_FORMAT = 1
# A checkpoint ends in a field of protobuf's that MindSpore does not know and passes over: its tag,
# its length, and this with the SHA-256 of all bytes before it.
_SEAL = b"\x7a\x28msgrad\x00\x01"
_SEAL_BYTES = len(_SEAL) + 32


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
    """Write a checkpoint of MindSpore that is either whole or not there, with a checksum in it.

    A safetensors file has none: what reads it checks the layout, and the side file its values.

    Raises:
        CheckpointError: The file cannot be written.
    """
    entries = [
        {"name": name, "data": Tensor(copy_of(value), value.dtype)}
        for name, value in values.items()
    ]

    def write(part: Path) -> None:
        ms.save_checkpoint(entries, str(part), format=kind)
        if kind == "ckpt":
            with part.open("ab") as file:
                file.write(_SEAL + _digest(part, part.stat().st_size))

    write_whole(path, write, kind)


def _digest(path: Path, size: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (block := file.read(min(size, 1 << 20))):
            digest.update(block)
            size -= len(block)
    return digest.digest()


def _seal_of(path: Path) -> bytes | None:
    """Return the checksum that a file ends in; None where it has none."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _SEAL_BYTES, 0))
        end = file.read()
    return end[len(_SEAL) :] if end.startswith(_SEAL) else None


def _is_damaged(path: Path) -> bool:
    """Whether a file has other bytes than its checksum says; it is read whole.

    To be asked before MindSpore reads it, whose process a damaged file may end.
    """
    seal = _seal_of(path)
    return seal is not None and seal != _digest(path, path.stat().st_size - _SEAL_BYTES)


def read_file(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_file`.

    Raises:
        CheckpointError: There is no such file, it is damaged, or something else wrote it.
    """
    values = read_checkpoint(path, "give what TrainStep.save wrote")
    meta = take_meta(path, values)
    if meta is None:
        raise CheckpointError(
            f"path {str(path)!r} is a checkpoint that TrainStep.save did not write; load it with "
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
    if _seal_of(target) is None:
        raise CheckpointError(
            f"path {str(target)!r} is damaged: it has lost its checksum; give another file"
        )
    return meta


# Slots of all optimizers of MindSpore 2.7 and 2.10, and what msgrad's own steps keep. A name in
# front of a weight's is not enough: `backbone.fc.weight` may stand beside `fc.weight`.
_SLOTS = re.compile(
    r"accum|accum_update|adam_[mv]|ax_?|exp_avg|exp_avg_sq|exp_inf|gathered|hold_flag|hold_mask|lamb_[mv]"
    r"|linear|max_exp_avg_sq|mean_grad|mean_square|moment[12s]?|momentum_buf|msgrad\.rate"
    r"|msgrad\.rate_made|prev|stat|step_size"
)
# A mask of a slot stands in front of the slot: `hold_mask.moments.<weight>`.
_MASK = "hold_mask."
_COUNTERS = re.compile(
    r"global_step|step_t|state_step|afactor_step|beta[12]_power|momentum|learning_rate\w*"
    r"|scale_sense|current_iterator_step|last_overflow_iterator_step|msgrad\.meta|updates\.due|gathered_calls"
    r"|epoch_num|step_num|scale_value|counter"
)


def read_checkpoint(
    path: str | os.PathLike[str],
    remedy: str = "give a .ckpt or .safetensors file",
    damaged: CheckpointError | None = None,
) -> dict[str, Tensor]:
    """Read all tensors of a `.ckpt` or `.safetensors` file, whatever its ending is.

    A `.ckpt` that ends exactly between two values cannot be told from a shorter one.

    Args:
        path: The file.
        remedy: What to give where it is no file.
        damaged: What to raise where its bytes are not those that its checksum says; None says so.

    Returns:
        The tensors by name.

    Raises:
        CheckpointError: There is no such file, or it is damaged or of another kind.
    """
    target = Path(path)
    if not target.is_file():
        raise CheckpointError(f"path {str(target)!r} is no file; {remedy}")
    if _is_damaged(target):
        raise damaged or CheckpointError(
            f"path {str(target)!r} is damaged: its bytes are not those that were written; give "
            "another file"
        )
    try:
        values = _loaded(target, _kind(target))
    # of a damaged file MindSpore raises what comes
    except Exception as error:
        raise CheckpointError(
            f"path {str(target)!r} of {target.stat().st_size} bytes cannot be read, it is damaged "
            "or no checkpoint; give a whole file that MindSpore wrote"
        ) from error
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _kind(path: Path) -> str:
    """Say which kind of file it is, by its beginning.

    Raises:
        ValueError: It begins like a safetensors file and is none; MindSpore would leave it open.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if file.read(1) != b"{":
            return "ckpt"
        # a foreign file may claim more than memory can hold
        header = json.loads(b"{" + file.read(min(length - 1, path.stat().st_size)))
    ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    if 8 + length + max(ends, default=0) != path.stat().st_size:
        raise ValueError("the values have another size than the header says")
    return "safetensors"


def _loaded(path: Path, kind: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        # load_checkpoint wants the ending
        link = Path(folder) / f"part.{kind}"
        link.symlink_to(path.resolve())
        return ms.load_checkpoint(str(link), format=kind)


def state_among(names: Collection[str]) -> set[str]:
    """Return those of the names in a checkpoint that are of an optimizer's or a step's state.

    Examples:
        >>> sorted(state_among(["fc.weight", "moment1.fc.weight", "global_step", "body.fc.weight"]))
        ['global_step', 'moment1.fc.weight']
    """
    known = set(names)
    return {name for name in names if _COUNTERS.fullmatch(name) or _is_slot(name, known)}


def _is_slot(name: str, known: Collection[str]) -> bool:
    owner = owner_of(name, known)
    if owner is None:
        return False
    slot = name.removesuffix(owner)
    if slot != _MASK:
        slot = slot.removeprefix(_MASK)
    # a slot without a dot before the weight was found by its name already
    return not slot.endswith(".") or _SLOTS.fullmatch(slot[:-1]) is not None
