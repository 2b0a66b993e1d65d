"""The folder of a run: of one run, and of one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from msgrad.errors import CheckpointError, PlanError
from msgrad.plans import read_document

CONFIG, FIGURES, PICTURE = "config.yaml", "figures.json", "layers.png"
WEIGHTS, BEST = "weights.ckpt", "best.ckpt"
LAST, NEW, OLD = "last", ".last.new", ".last.old"
_LOCK = ".lock"
# what a later start would mix with its own; the config goes last, since it says whose the rest is
_LEFT = (PICTURE, FIGURES, WEIGHTS, BEST, LAST, OLD)
_FILES = (*_LEFT, NEW, CONFIG)
# a resolved config has all of them, one that somebody wrote hardly
_RESOLVED = {"task", "mode", "unreached", "loss_scale", "task_args", "ckpt_save_dir", "plan"}


def place_of(resume: str | os.PathLike[str]) -> Path:
    """Return the folder of the run that a path to resume from means: it, or the one above."""
    folder = Path(resume)
    # a run may itself be called last
    inside = folder.name in (LAST, OLD) and not any((folder / n).exists() for n in (LAST, OLD))
    return folder.parent if inside else folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep all other processes from training in a folder; it is made where it is not there.

    The lock ends with the process, however that ends.

    Raises:
        CheckpointError: Another process trains in it, or it cannot be written.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _locked(folder / _LOCK)
    except BlockingIOError:
        raise CheckpointError(
            f"ckpt_save_dir {str(folder)!r} is in use: process {_holder(folder)} trains in it; "
            "wait for its end, or give another by --set ckpt_save_dir=PATH"
        ) from None
    except OSError as error:
        raise CheckpointError(
            f"ckpt_save_dir {str(folder)!r} cannot be written: {error.strerror or error}; give "
            "another by --set ckpt_save_dir=PATH"
        ) from error
    try:
        yield
    finally:
        # while it is locked, so that nobody waits for a file that is gone
        with file, suppress(OSError):
            (folder / _LOCK).unlink()
            for path in made:
                path.rmdir()


def _locked(path: Path) -> IO[str]:
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        except OSError:
            file.close()
            raise
        # its holder may have removed it between the two
        with suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        file.close()


def _holder(folder: Path) -> str:
    with suppress(OSError):
        return (folder / _LOCK).read_text(encoding="utf-8") or "?"
    return "?"


def make_room(folder: Path, *, overwrite: bool) -> None:
    """Let a new run begin in a folder: it holds no other, or the other is cleared.

    Args:
        folder: The folder, locked.
        overwrite: Whether to clear what a run of msgrad left; all else stays.

    Raises:
        CheckpointError: It holds a run, or files of these names that no run left.
    """
    there = [name for name in _FILES if (folder / name).exists()]
    saved = _saved(folder)
    if there and saved is None:
        raise CheckpointError(
            f"ckpt_save_dir {str(folder)!r} holds {', '.join(there)}, which no run of msgrad left; "
            "give another by --set ckpt_save_dir=PATH"
        )
    there = [name for name in there if name in _LEFT]
    exported = f"{(saved or {}).get('name')}.mindir"
    there += [exported] * (folder / exported).is_file()
    if there and not overwrite:
        raise CheckpointError(
            f"ckpt_save_dir {str(folder)!r} holds a run already: {', '.join(there)}; go on with it "
            f"by --resume {folder}, keep both by --set name=NAME or ckpt_save_dir=PATH, or clear "
            "it by --overwrite"
        )
    _clear(folder, [*there, NEW, CONFIG])


def _saved(folder: Path) -> dict | None:
    """Return the values of the config that a run left; None where there is none."""
    try:
        values = read_document(folder / CONFIG).values
    except PlanError:
        return None
    return values if isinstance(values, dict) and values.keys() >= _RESOLVED else None


def _clear(folder: Path, names: list[str]) -> None:
    for name in names:
        # those too that a killed process was still writing
        for path in (folder / name, *folder.glob(f".{name}.*")):
            try:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise CheckpointError(
                    f"path {str(path)!r} cannot be cleared: {error.strerror or error}; give "
                    "another folder by --set ckpt_save_dir=PATH"
                ) from error
