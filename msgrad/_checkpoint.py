"""A checkpoint of MindSpore, read whole or refused; what in it is optimizer state told apart."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path

import mindspore as ms
from mindspore import Tensor

from msgrad._errors import CheckpointError
from msgrad._slots import owner_of

# Slots of all optimizers of MindSpore 2.7 and 2.10, and what msgrad's own steps keep. A name in
# front of a weight's is not enough: `backbone.fc.weight` may stand beside `fc.weight`.
_SLOTS = frozenset(
    [
        "accum",
        "accum_update",
        "adam_m",
        "adam_v",
        "ax",
        "ax_",
        "exp_avg",
        "exp_avg_sq",
        "exp_inf",
        "hold_flag",
        "hold_mask",
        "lamb_m",
        "lamb_v",
        "linear",
        "max_exp_avg_sq",
        "mean_grad",
        "mean_square",
        "moment",
        "moment1",
        "moment2",
        "moments",
        "momentum_buf",
        "msgrad.rate",
        "prev",
        "stat",
        "step_size",
    ]
)
# A mask of a slot stands in front of the slot: `hold_mask.moments.<weight>`.
_MASK = "hold_mask."
_COUNTERS = re.compile(
    r"global_step|step_t|state_step|afactor_step|beta[12]_power|momentum|learning_rate\w*"
    r"|scale_sense|current_iterator_step|last_overflow_iterator_step|msgrad\.meta|updates\.due"
    r"|epoch_num|step_num|scale_value|counter"
)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read all tensors of a `.ckpt` or `.safetensors` file, whatever its ending is.

    A `.ckpt` that ends exactly between two values cannot be told from a shorter one.

    Args:
        path: The file.

    Returns:
        The tensors by name.

    Raises:
        CheckpointError: There is no such file, or it is damaged or of another kind.
    """
    target = Path(path)
    if not target.is_file():
        raise CheckpointError(f"path {str(target)!r} is no file; give a .ckpt or .safetensors file")
    try:
        values = _loaded(target, _kind(target))
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
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
    return not slot.endswith(".") or slot.removesuffix(".") in _SLOTS
