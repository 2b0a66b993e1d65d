"""The run keys of a config: the kind of each, and what belongs elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgrad.errors import PlanError
from msgrad.plans import (
    MAPPING,
    PATTERNS,
    SWITCH,
    TEXT,
    Checker,
    KeyPath,
    Kind,
    UnfitError,
    number,
    one_of,
    read_until,
    whole,
)
from msgrad.runs._optimizers import optimizer_keywords, schedule_keywords
from msgrad.runs._task import find_task

_NAME = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class OptimizerKeys:
    """An optimizer of `mindspore.nn`, its rate, and its other keywords.

    Attributes:
        name: The name of its class.
        learning_rate: A number, or a mapping of a schedule of `mindspore.nn` and its keywords.
        keywords: What else it is made with.

    Examples:
        >>> OptimizerKeys("Momentum", 0.1, {"momentum": 0.9, "weight_decay": 0.01}).weight_decay
        0.01
    """

    name: str = "AdamWeightDecay"
    learning_rate: float | Mapping[str, Any] = 0.001
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weight_decay(self) -> float:
        """The decay, 0 where none is given."""
        return self.keywords.get("weight_decay", 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys as a config has them."""
        return {"name": self.name, "learning_rate": self.learning_rate, **self.keywords}


@dataclass(frozen=True)
class StepKeys:
    """One of several train steps on a network.

    Attributes:
        trains: Patterns of what it trains.
        loss: The function of the task that makes its loss of the network.
        optimizer: Its own optimizer; None takes that of the config.

    Examples:
        >>> StepKeys(("generator",), "g_loss").to_dict()
        {'trains': ['generator'], 'loss': 'g_loss'}
    """

    trains: tuple[Any, ...]
    loss: str
    optimizer: OptimizerKeys | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the keys as a config has them."""
        own = {} if self.optimizer is None else {"optimizer": self.optimizer.to_dict()}
        return {"trains": list(self.trains), "loss": self.loss, **own}


def _maybe(kind: Kind) -> Kind:
    """Return the kind of what may be left empty, as MindSpore's own configs do with ""."""
    return Kind(lambda value: None if value is None or value == "" else kind.read(value))


def _above_zero() -> Kind:
    kind = number("give a number above 0")

    def read(value: Any) -> float:
        found = kind.read(value)
        if found == 0:
            raise UnfitError("is 0; give a number above 0, or leave the key out")
        return found

    return Kind(read)


def _distribute(value: Any) -> bool | str:
    if isinstance(value, bool) or value == "auto":
        return value
    raise UnfitError("is no choice; give true, false or auto")


def _rate(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else number().read(value)


_ANY = Kind(lambda value: value)
KINDS: dict[str, Kind] = {
    "task": TEXT,
    "name": TEXT,
    "mode": one_of("graph", "pynative"),
    "device_target": one_of("auto", "Ascend", "CPU"),
    "device_id": _maybe(whole()),
    "distribute": Kind(_distribute),
    "data_dir": _maybe(TEXT),
    "epoch_size": whole(1),
    "batch_size": whole(1),
    "ckpt_path": _maybe(TEXT),
    "ckpt_save_dir": TEXT,
    "dataset_sink_mode": SWITCH,
    "seed": whole(0, 2**32 - 1),
    "jit_level": _maybe(one_of("O0", "O1")),
    "clip_norm": _maybe(_above_zero()),
    "clip_value": _maybe(_above_zero()),
    "accumulate": whole(1),
    "unreached": one_of("freeze", "error", "allow"),
    "has_aux": SWITCH,
    "loss_scale": _maybe(_above_zero()),
    "optimizer": MAPPING,
    "steps": MAPPING,
    "task_args": MAPPING,
    "best": _maybe(_ANY),
    "early_stop": _maybe(_ANY),
}


def read_run_keys(checker: Checker) -> dict[str, Any]:
    """Read the run keys of a config; what is wrong is noted in the checker.

    Returns:
        The arguments of `Config`, those that fit.
    """
    values = checker.document.values
    if not isinstance(values, Mapping):
        return {}
    own = {key: value for key, value in values.items() if key in KINDS}
    keys = checker.mapping((), own, KINDS, "the config")
    if "task" not in own:
        checker.note((), "task is missing; give the Python file that makes network, loss and data")
    if "task" in keys:
        _check_task(checker, keys["task"])
    if "optimizer" in keys:
        keys["optimizer"] = _optimizer(checker, ("optimizer",), keys["optimizer"])
    for key in ("best", "early_stop"):
        given = keys.get(key)
        # `best: false` keeps none
        if given is not None and not (key == "best" and given is False):
            keys[key] = read_until(checker, (key,), given, key)
    if "steps" in keys:
        read = {name: _step(checker, name, step) for name, step in keys["steps"].items()}
        keys["steps"] = {name: step for name, step in read.items() if step is not None}
    return keys


def _check_task(checker: Checker, task: str) -> None:
    try:
        find_task(task, checker.document.folder)
    except PlanError as error:
        checker.note(("task",), str(error))


def _optimizer(checker: Checker, path: KeyPath, values: Mapping[str, Any]) -> OptimizerKeys:
    """Read an optimizer: which keywords there are depends on its class."""
    first = OptimizerKeys()
    name = str(values.get("name", first.name))
    takes = _takes(checker, (*path, "name"), name, optimizer_keywords)
    if takes is None:
        return first
    kinds = {**dict.fromkeys(takes, _ANY), "name": TEXT, "learning_rate": Kind(_rate)}
    kinds["weight_decay"] = number()
    owner = f"optimizer {name}"
    found = checker.mapping(path, values, kinds, owner, {"lr": "write learning_rate"})
    needs = [key for key, needed in takes.items() if needed and key != "learning_rate"]
    _check_needed(checker, path, values, needs, owner)
    rate = found.pop("learning_rate", first.learning_rate)
    if isinstance(rate, Mapping):
        _check_schedule(checker, (*path, "learning_rate"), rate)
    found.pop("name", None)
    return OptimizerKeys(name, rate, found)


def _check_schedule(checker: Checker, path: KeyPath, values: Mapping[str, Any]) -> None:
    name = values.get("name")
    if name is None:
        checker.note(path, "learning_rate has no name; give that of a schedule of mindspore.nn")
        return
    takes = _takes(checker, (*path, "name"), str(name), schedule_keywords)
    if takes is not None:
        kinds = {**dict.fromkeys(takes, _ANY), "name": TEXT}
        checker.mapping(path, values, kinds, f"schedule {name}")
        needs = [key for key, needed in takes.items() if needed]
        _check_needed(checker, path, values, needs, f"schedule {name}")


def _takes(
    checker: Checker, path: KeyPath, name: str, keywords: Callable[[str], dict[str, bool]]
) -> dict[str, bool] | None:
    try:
        return keywords(name)
    except PlanError as error:
        checker.note(path, f"name {name!r} {error}")
        return None


def _check_needed(
    checker: Checker, path: KeyPath, values: Mapping[str, Any], needs: list[str], owner: str
) -> None:
    for key in needs:
        if key not in values:
            checker.note(path, f"{key} of {owner} is missing; give it a value")


def _step(checker: Checker, name: Any, values: Any) -> StepKeys | None:
    path = ("steps", name)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        checker.note(path, f"step {name!r} is no name; give letters and digits")
    kinds = {"trains": PATTERNS, "loss": TEXT, "optimizer": MAPPING}
    found = checker.mapping(path, values, kinds, f"step {name!r}")
    if isinstance(values, Mapping):
        _check_needed(checker, path, values, ["trains", "loss"], f"step {name!r}")
    if "optimizer" in found:
        found["optimizer"] = _optimizer(checker, (*path, "optimizer"), found["optimizer"])
    return StepKeys(**found) if {"trains", "loss"} <= found.keys() else None
