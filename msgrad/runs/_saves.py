"""The saves of a run: every train step after each epoch, all of one position or none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import mindspore as ms
from mindspore import nn

from msgrad.backend import saves_here
from msgrad.errors import CheckpointError
from msgrad.training import Position, TrainStep

_LAST, _NEW, _OLD = "last", ".last.new", ".last.old"
WEIGHTS = "weights.ckpt"


def save_steps(folder: Path, steps: Mapping[str, TrainStep]) -> None:
    """Save each step into ``folder/last``, on rank 0; one that is killed keeps the save before.

    Raises:
        CheckpointError: A file cannot be written.
    """
    if not saves_here():
        return
    new, last, old = folder / _NEW, folder / _LAST, folder / _OLD
    shutil.rmtree(new, ignore_errors=True)
    for name, step in steps.items():
        step.save(new / f"{name}.ckpt")
    shutil.rmtree(old, ignore_errors=True)
    if last.exists():
        last.rename(old)
    new.rename(last)
    shutil.rmtree(old, ignore_errors=True)


def find_save(folder: Path, names: list[str]) -> Path:
    """Return where the save of a run lies.

    Args:
        folder: The ``ckpt_save_dir`` of the run, or its folder ``last``.
        names: The steps that it has to hold.

    Raises:
        CheckpointError: There is no save, or it is that of other steps.
    """
    # killed between the two renames, the old save has another name
    places = [folder / _LAST, folder / _OLD, folder]
    found = next((p for p in places if any(p.glob("*.ckpt")) and not (p / WEIGHTS).exists()), None)
    if found is None:
        raise CheckpointError(
            f"resume {str(folder)!r} holds no save of a run; give the ckpt_save_dir of a run that "
            "ended an epoch"
        )
    held = sorted(file.stem for file in found.glob("*.ckpt"))
    if held != sorted(names):
        raise CheckpointError(
            f"resume {str(folder)!r} is a save of the steps {', '.join(held)}, and the config has "
            f"{', '.join(names)}; give the config of that run"
        )
    return found


def load_steps(folder: Path, steps: Mapping[str, TrainStep]) -> Position:
    """Go on from what `save_steps` wrote.

    Raises:
        CheckpointError: A file does not fit the network, or the steps were saved apart.
    """
    positions = {name: step.load(folder / f"{name}.ckpt") for name, step in steps.items()}
    if len(set(positions.values())) > 1:
        told = ", ".join(f"{name} at step {p.step}" for name, p in positions.items())
        raise CheckpointError(f"resume {str(folder)!r} mixes saves: {told}; begin the run anew")
    return next(iter(positions.values()))


def save_weights(folder: Path, net: nn.Cell) -> Path:
    """Write all weights of a network, to evaluate and to export; whole or not at all."""
    part, path = folder / ".weights.ckpt", folder / WEIGHTS
    folder.mkdir(parents=True, exist_ok=True)
    ms.save_checkpoint(net, str(part))
    part.replace(path)
    return path
