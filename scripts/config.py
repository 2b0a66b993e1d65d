"""The config of a run: a YAML file, changed by key=value, every key and type checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import yaml

from msgrad import PlanError

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Optimizer:
    """An optimizer of `mindspore.nn` and its two numbers."""

    name: str = "AdamWeightDecay"
    learning_rate: float = 0.005
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Config:
    """One run. `stop_by_hand` is the way without msgrad, to compare with.

    Attributes:
        stop: Cells behind which no gradient passes.
        freeze: Weights that stay while the gradient passes.
        stop_by_hand: `ops.stop_gradient` behind conv1 in `construct`, and MindSpore's own train
            cell over all parameters.
    """

    name: str = "digits"
    mode: str = "graph"
    device_target: str = "auto"
    seed: int = 1
    epoch_size: int = 12
    batch_size: int = 32
    optimizer: Optimizer = field(default_factory=Optimizer)
    stop: list[str] = field(default_factory=list)
    freeze: list[str] = field(default_factory=list)
    stop_by_hand: bool = False


def load_config(path: str, changes: Sequence[str] = (), kind: type[Kind] = Config) -> Kind:
    """Read a config file and apply changes such as ``optimizer.learning_rate=0.01``.

    Another dataclass as ``kind`` names other keys.

    Raises:
        PlanError: The file cannot be read, or a key or value is not one of a config.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeError) as error:
        raise PlanError(f"config {path!r} cannot be read: {error}; give a YAML file") from None
    values = _mapping(_parse(text, f"config {path!r}") or {}, path)
    for change in changes:
        _apply(values, change)
    return _build(kind, values, path)


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise PlanError(f"{where} is not YAML: {reason}; write key: value lines") from None


def _mapping(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise PlanError(f"{where} {values!r} is not a mapping; write key: value lines")
    return values


def _apply(values: dict[str, Any], change: str) -> None:
    """Set one key in place; dots lead into a mapping."""
    path, equals, text = change.partition("=")
    if not equals:
        raise PlanError(f"change {change!r} has no '='; write --set key=value")
    *parents, last = path.split(".")
    for parent in parents:
        values = _mapping(values.setdefault(parent, {}), parent)
    values[last] = _parse(text, f"change {change!r}")


def _build(kind: type, values: Any, where: str) -> Any:
    """Make the dataclass of a mapping, with the fields' types."""
    _mapping(values, where)
    known = [item.name for item in fields(kind)]
    types = get_type_hints(kind)
    for key in values:
        if key not in known:
            raise PlanError(f"key {key!r} in {where} is unknown; {nearest(str(key), known)}")
    return kind(**{key: _value(value, types[key], key) for key, value in values.items()})


def _value(value: Any, kind: type, key: str) -> Any:
    if is_dataclass(kind):
        return _build(kind, value, key)
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return [_value(each, item, key) for each in (value if isinstance(value, list) else [value])]
    if kind is str and isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # a layer named 10
    if kind is float and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 1e-3 as text
        except (TypeError, ValueError):
            pass
    if type(value) is not kind:
        raise PlanError(f"{key} {value!r} is not of type {kind.__name__}; give one")
    return value


def nearest(given: str, known: Iterable[str]) -> str:
    """Say which of the known words was meant, or list them."""
    known = list(known)
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
