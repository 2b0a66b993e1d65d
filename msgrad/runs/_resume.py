"""Going on with a run: where it lies, and that its config is the one it was saved under."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgrad.errors import CheckpointError, PlanError
from msgrad.freezing import records_of
from msgrad.plans import parse_document, read_document
from msgrad.runs._build import Run
from msgrad.runs._config import Config
from msgrad.runs._folder import CONFIG, WEIGHTS, place_of
from msgrad.runs._saves import WATCHED, find_save, load_steps
from msgrad.runs._watch import Watch
from msgrad.training import Position

_LOG = logging.getLogger("msgrad")
# What comes back with the save, whatever the config says, or decides which batches are next.
_SAME = ("seed", "batch_size")
# What takes effect from here on.
_NAMED = (
    *("task", "task_args", "mode", "data_dir", "ckpt_path", "clip_norm", "clip_value"),
    *("accumulate", "unreached", "loss_scale", "stages", "best", "early_stop"),
)


def go_where_it_lies(run: Run, resume: str | Path) -> Path:
    """Give a run the folder of the run that it goes on with.

    Raises:
        CheckpointError: The command line names another folder, or there is no such run.
    """
    config, folder = run.config, place_of(resume)
    find_save(Path(resume), list(run.steps))
    if folder.resolve() != config.save_dir.resolve():
        if config.source.changed(("ckpt_save_dir",)):
            raise CheckpointError(
                f"resume {str(resume)!r} goes on where it lies, and ckpt_save_dir is "
                f"{config.ckpt_save_dir!r}; drop one of the two, or begin a run there with "
                f"--set ckpt_path={folder / WEIGHTS}"
            )
        if config.ckpt_save_dir:
            _LOG.warning("the run goes on in %s, not in ckpt_save_dir %s", folder, config.save_dir)
    run.config = replace(config, ckpt_save_dir=str(folder))
    return folder


def resumed(run: Run, resume: str | Path, size: int, watch: Watch) -> Position:
    """Bring a run back to its last save.

    Args:
        run: The run.
        resume: Its folder.
        size: Batches of an epoch.
        watch: Its metrics, which go on too.

    Raises:
        CheckpointError: It was saved under another config, or does not fit.
        PlanError: It is at its end.
    """
    location = find_save(Path(resume), list(run.steps))
    check_config(run.config, resume, location.parent / CONFIG)
    position = load_steps(location, run.steps)
    watched = location / WATCHED
    seen = json.loads(watched.read_text(encoding="utf-8")) if watched.is_file() else {}
    watch.load(seen, position.epoch)
    check_plan(run, resume, position)
    if position.epoch >= run.config.epoch_size:
        raise PlanError(
            f"resume {str(resume)!r} is at the end, epoch {position.epoch} of "
            f"{run.config.epoch_size}; give a larger epoch_size to go on"
        )
    if position.step != position.epoch * size:
        raise CheckpointError(
            f"resume {str(resume)!r} did {position.step} steps in {position.epoch} epochs, and the "
            f"data give {size} in each; give the same data and number of processes, or begin a "
            "run with ckpt_path"
        )
    return position


def check_config(config: Config, resume: str | Path, saved: Path) -> None:
    """Refuse a save whose rates, seed and batches, which come back with it, are not the config's.

    What else the config changes is named in a warning.

    Args:
        config: That of the run.
        resume: Where the save is from, for the message.
        saved: The resolved config of the saved run; where it is not there, nothing is looked at.

    Raises:
        CheckpointError: They are others.
    """
    if not saved.is_file():
        return
    own = parse_document(config.to_yaml(saved.parent)).values
    before = read_document(saved).values
    for key in _SAME:
        if own[key] != before.get(key, own[key]):
            raise CheckpointError(
                f"resume {str(resume)!r} was saved with {key} {before[key]}, and the config has "
                f"{own[key]}; give --set {key}={before[key]}, or begin a run with ckpt_path"
            )
    rates = _rates(own)
    other = [key for key, value in _rates(before).items() if rates[key] != value]
    if other:
        raise CheckpointError(
            f"resume {str(resume)!r} brings its own rates, and {other[0]} of the config is not "
            "what it was saved with; give the same, or begin a run with ckpt_path"
        )
    others = [key for key in _NAMED if own.get(key) != before.get(key)]
    if others:
        _LOG.warning(
            "%s goes on under another config: %s",
            resume,
            ", ".join(f"{key} was {before.get(key)!r} and is {own.get(key)!r}" for key in others),
        )


def _rates(values: Any) -> dict[str, Any]:
    steps, plan = values.get("steps") or {}, values.get("plan") or []
    return {
        "optimizer": values.get("optimizer"),
        "steps": {name: step.get("optimizer") for name, step in steps.items()},
        "plan, a group rule": [(r["group"], r.get("lr_scale")) for r in plan if "group" in r],
    }


def check_plan(run: Run, resume: str | Path, position: Position) -> None:
    """Refuse a save whose freezes, which come back with it, are not those of the plan.

    Args:
        run: A run that was brought back.
        resume: Where from, for the message.
        position: Its position there.

    Raises:
        CheckpointError: Another weight trains than the plan says.
    """
    schedule, stage = run.schedule, 0
    if schedule is not None:
        schedule.at(epoch=position.epoch, step=position.step)
        stage = schedule.index(position.epoch if schedule.unit == "epochs" else position.step)
    wanted = set(run.config.plan.trains(run.net)[stage])
    records = records_of(run.net).values()
    other = [str(r.parameter.name) for r in records if r.trains != (r.parameter.name in wanted)]
    if other:
        what = "is held" if other[0] in wanted else "trains"
        raise CheckpointError(
            f"resume {str(resume)!r} was saved under another plan: {other[0]!r} {what} in it and "
            "not in the config; give the config of that run, or begin a run with ckpt_path"
        )
