"""The saves of a run: every train step after each epoch, all of one position or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from mindspore import nn

from msgrad._files import write_whole
from msgrad.backend import saves_here
from msgrad.checkpoints import write_values
from msgrad.errors import CheckpointError
from msgrad.runs._folder import LAST, NEW, OLD, place_of
from msgrad.training import Position, TrainStep

# beside the steps: the best weights so far, and what is watched
KEPT, WATCHED = "best", "watched.json"


def save_steps(
    folder: Path, steps: Mapping[str, TrainStep], before: Callable[[], object] = lambda: None
) -> None:
    """Save each step into ``folder/last``, on rank 0; one that is killed keeps the save before.

    Args:
        folder: The folder of the run.
        steps: The steps.
        before: Called on every rank before they are saved, to write into ``folder/.last.new`` too.

    Raises:
        CheckpointError: A file cannot be written.
    """
    new, last, old = folder / NEW, folder / LAST, folder / OLD
    writes = saves_here()
    if writes:
        shutil.rmtree(new, ignore_errors=True)
    before()
    if not writes:
        return
    for name, step in steps.items():
        step.save(new / f"{name}.ckpt")
    try:
        if last.exists():
            shutil.rmtree(old, ignore_errors=True)
            last.rename(old)
        # where a process was killed just here, the save before is called old
        new.rename(last)
    except OSError as error:
        raise CheckpointError(
            f"path {str(last)!r} cannot be written: {error.strerror or error}"
        ) from error
    shutil.rmtree(old, ignore_errors=True)


def present(folder: Path) -> Path:
    """Return the folder of the last whole save."""
    last = folder / LAST
    return last if last.exists() else folder / OLD


def copy_file(source: Path, target: Path) -> None:
    """Copy a file, whole or not at all.

    Raises:
        CheckpointError: It cannot be written.
    """
    write_whole(target, lambda part: shutil.copyfile(source, part), target.suffix.lstrip("."))


def find_save(folder: Path, names: list[str]) -> Path:
    """Return where the save of a run lies.

    Args:
        folder: The ``ckpt_save_dir`` of the run, or its folder ``last``.
        names: The steps that it has to hold.

    Raises:
        CheckpointError: There is no save, or it is that of other steps.
    """
    # killed between the two renames, the old save has another name
    places = [place_of(folder) / LAST, place_of(folder) / OLD]
    found = next((place for place in places if any(place.glob("*.ckpt"))), None)
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


def save_weights(path: Path, net: nn.Cell) -> None:
    """Write all weights of a network, to evaluate and to export; whole or not at all.

    Raises:
        CheckpointError: The file cannot be written.
    """
    write_values(path, {str(p.name): p for p in net.get_parameters()})
