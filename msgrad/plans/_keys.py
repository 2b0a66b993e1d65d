"""The keys of a plan, read: its rules, its stages, its audit, and all that is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgrad.network import nearest
from msgrad.plans._document import KeyPath
from msgrad.plans._rule import FIELDS, KINDS, PlanRule
from msgrad.plans._schema import MAPPING, Checker, Kind, one_of, whole
from msgrad.plans._stage import LENGTHS, REST, STAGE_KINDS, PlanStage
from msgrad.plans._until import read_until
from msgrad.updates import rules as ready_rules

RUN_KEYS = (
    *("task", "name", "mode", "device_target", "device_id", "distribute", "data_dir"),
    *("epoch_size", "batch_size", "ckpt_path", "ckpt_save_dir", "dataset_sink_mode", "seed"),
    *("jit_level", "clip_norm", "clip_value", "accumulate", "unreached", "has_aux", "loss_scale"),
    *("optimizer", "steps", "task_args", "best", "early_stop"),
)
PLAN_KEYS = ("plan", "stages", "updates", "audit")
# What other tools call these keys, or write elsewhere.
MEANT = {
    "learning_rate": "write it under 'optimizer'",
    "lr": "write learning_rate under 'optimizer'",
    "weight_decay": "write it under 'optimizer'",
    "momentum": "write it under 'optimizer'",
    "epochs": "write epoch_size for the run, and epochs in a stage, under 'stages'",
    "device": "write device_target",
    "data_path": "write data_dir",
    "checkpoint": "write ckpt_path",
    "early_stopping": "write early_stop",
    "patience": "write it under 'early_stop', or under until in a stage",
    "monitor": "write best: and the metric, early_stop: and the metric, or both",
    "distributed": "write distribute",
    "when": "write it under 'updates', or in an update rule",
}


# What no file can give an argument to.
READY = tuple(name for name in ready_rules.__all__ if name != "soft_update")
AUDIT_KINDS = {
    "steps": whole(1),
    "when": one_of("before", "never"),
    "on_problem": one_of("error", "warn"),
}


@dataclass(frozen=True)
class AuditSettings:
    """Whether and how a run is audited before it trains.

    Attributes:
        steps: Real steps that the audit makes and takes back.
        when: ``"before"`` the training, or ``"never"``.
        on_problem: What to do about a problem: ``"error"`` or ``"warn"``.

    Examples:
        >>> AuditSettings()
        AuditSettings(steps=3, when='before', on_problem='error')
    """

    steps: int = 3
    when: str = "before"
    on_problem: str = "error"


def read_rules(checker: Checker, values: Mapping[str, Any]) -> tuple[PlanRule, ...]:
    """Read the keys `plan` and `updates`; what is wrong is noted."""
    found = [
        _rule(checker, ("plan", number), value, f"rule {number + 1}")
        for number, value in enumerate(_list_of(checker, values, "plan", "- freeze: conv1"))
    ]
    found += _updates(checker, values.get("updates"))
    return tuple(rule for rule in found if rule is not None)


def read_stages(checker: Checker, values: Mapping[str, Any]) -> tuple[PlanStage, ...]:
    """Read the key `stages`; what is wrong is noted."""
    given = _list_of(checker, values, "stages", "- {train: head, epochs: 2}")
    found = [_stage(checker, number, value) for number, value in enumerate(given, 1)]
    stages = [stage for stage in found if stage is not None]
    _check_lengths(checker, stages, given)
    return tuple(stages)


def read_audit(checker: Checker, values: Mapping[str, Any]) -> AuditSettings | None:
    """Read the key `audit`; what is wrong is noted."""
    if "audit" not in values:
        return None
    elsewhere = {"epochs": "an audit is counted in steps"}
    found = checker.mapping(("audit",), values["audit"], AUDIT_KINDS, "audit", elsewhere)
    return AuditSettings(**found)


def check_top(checker: Checker, values: Mapping[str, Any]) -> None:
    """Note the keys at the top that are neither a plan's nor a run's."""
    elsewhere = {kind: f"write it under 'plan', as - {kind}: …" for kind in FIELDS}
    elsewhere |= {key: _owner_of(key) for key in ("train", "cumulative", "until")}
    elsewhere = {**_fields_elsewhere(), **elsewhere, **MEANT}
    top: dict[str, Kind] = {key: Kind(lambda value: value) for key in (*PLAN_KEYS, *RUN_KEYS)}
    unknown = {key: value for key, value in values.items() if key not in top}
    owner = "the file" if checker.document.file else "the dict"
    checker.mapping((), unknown, top, owner, elsewhere)


def _list_of(checker: Checker, values: Mapping[str, Any], key: str, example: str) -> list[Any]:
    given = values.get(key, [])
    if isinstance(given, (list, tuple)):
        return list(given)
    if given is None:
        checker.note((key,), f"{key} is empty; write a list, as {example}, or drop the key")
    else:
        checker.note((key,), f"{key} {given!r} is no list; begin each with a dash, as {example}")
    return []


def _rule(checker: Checker, path: KeyPath, value: Any, name: str) -> PlanRule | None:
    if not isinstance(value, Mapping):
        example = "freeze: conv1" if name.startswith("rule") else "update: fc1, with fn: clip"
        checker.note(path, f"{name} {value!r} is no mapping; write it as {example}")
        return None
    kinds = [kind for kind in FIELDS if kind in value]
    if len(kinds) != 1:
        _note_kind(checker, path, value, name, kinds)
        return None
    (kind,) = kinds
    before = len(checker.problems)
    found = checker.mapping(path, value, KINDS[kind], name, _elsewhere(kind))
    if len(checker.problems) == before:
        _check_fields(checker, path, kind, found, name)
    patterns = found.pop(kind, ())
    if not patterns:
        return None
    return PlanRule(kind, patterns, found, name, checker.document.location(path), path)


def _note_kind(
    checker: Checker, path: KeyPath, value: Mapping[str, Any], name: str, kinds: list[str]
) -> None:
    if kinds:
        checker.note(
            path, f"{name} has {len(kinds)} kinds, {' and '.join(kinds)}; write a rule each"
        )
        return
    for key in value:
        near = nearest(str(key), FIELDS, 1)
        if near:
            message = f"key {key!r} of {name} is unknown; did you mean {near[0]!r}?"
            checker.note((*path, key), message)
            return
    keys = ", ".join(map(repr, value)) or "no key"
    checker.note(path, f"{name} has {keys} and no kind; give one of {', '.join(FIELDS)}")


def _elsewhere(kind: str) -> dict[str, str]:
    """Return what to do about keys that other rules, stages or the run have."""
    found = {key: _owner_of(key) for key in ("epochs", "steps", "cumulative", "train")}
    found |= {key: _owner_of(key) for key in (*RUN_KEYS, *PLAN_KEYS) if key not in found}
    found |= {"learning_rate": "it is a key of 'optimizer'; write lr_scale in a rule of kind group"}
    for fields in FIELDS.values():
        for key in fields:
            if key not in FIELDS[kind]:
                owners = [name for name, own in FIELDS.items() if key in own]
                found[key] = f"it is a field of {_all_of(owners)}"
    return found


def _fields_elsewhere() -> dict[str, str]:
    """Return what to do about a field of a rule where no rule stands."""
    found = {}
    for key in {key for fields in FIELDS.values() for key in fields}:
        owners = _all_of([kind for kind, own in FIELDS.items() if key in own])
        found[key] = f"it is a field of a rule of kind {owners}; write that under 'plan'"
    return found


def _all_of(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _owner_of(key: str) -> str:
    if key in STAGE_KINDS:
        return "write it in a stage, under 'stages'"
    return "write it at the top of the file"


def _check_fields(
    checker: Checker, path: KeyPath, kind: str, found: Mapping[str, Any], owner: str
) -> None:
    if kind == "scale" and "by" not in found:
        checker.note(path, f"{owner} has no factor; add by: 0.1")
    if kind == "group" and not found.keys() - {"group"}:
        checker.note(path, f"{owner} says nothing of the group; add lr_scale or weight_decay")
    if kind == "update":
        _check_function(checker, path, found, owner)


def _check_function(checker: Checker, path: KeyPath, found: Mapping[str, Any], owner: str) -> None:
    function = found.get("fn")
    if function is None:
        checker.note(path, f"{owner} has no function; add fn: clip, or fn: file.py:function")
    elif isinstance(function, str) and ":" not in function and function not in READY:
        where = f"fn {function!r} of {owner}"
        near = nearest(function, READY, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(READY)}"
        if function == "soft_update":
            meant = "it needs another network: write a function, as fn: file.py:function"
        elif function.endswith(".py"):
            meant = f"name a function in it, as {function}:grow"
        checker.note((*path, "fn"), f"{where} is no ready rule; {meant}")


def _updates(checker: Checker, given: Any) -> list[PlanRule | None]:
    """Read `updates`: patterns with a function each, a list of rules, or {when, rules}."""
    if given is None:
        return []
    path: KeyPath = ("updates",)
    if isinstance(given, (list, tuple)):
        return [
            _rule(checker, (*path, number), value, f"update {number + 1}")
            for number, value in enumerate(given)
        ]
    more: dict[str, Any] = {}
    if isinstance(given, Mapping) and isinstance(given.get("rules"), Mapping):
        kinds = {"when": FIELDS["update"]["when"], "force": FIELDS["update"]["force"]}
        more = checker.mapping(path, given, {**kinds, "rules": MAPPING}, "updates")
        path, given = ("updates", "rules"), more.pop("rules", {})
    if not isinstance(given, Mapping):
        checker.note(path, f"updates {given!r} is no mapping; write it as fc1: file.py:function")
        return []
    return [
        _short(checker, (*path, key), key, value, more, f"update {number}")
        for number, (key, value) in enumerate(given.items(), 1)
    ]


def _short(
    checker: Checker, path: KeyPath, pattern: Any, value: Any, more: Mapping[str, Any], name: str
) -> PlanRule | None:
    """Read one pattern with its function, or with a mapping of the fields of an update."""
    own = dict(value) if isinstance(value, Mapping) else {"fn": value}
    return _rule(checker, path, {"update": pattern, **more, **own}, name)


def _stage(checker: Checker, number: int, value: Any) -> PlanStage | None:
    path: KeyPath = ("stages", number - 1)
    owner = f"stage {number}"
    if not isinstance(value, Mapping):
        checker.note(
            path, f"{owner} {value!r} is no mapping; write it as {{train: head, epochs: 2}}"
        )
        return None
    elsewhere = _fields_elsewhere()
    elsewhere |= {kind: "write it as a rule, under 'plan'" for kind in FIELDS if kind != "freeze"}
    elsewhere |= {key: _owner_of(key) for key in (*RUN_KEYS, *PLAN_KEYS) if key != "steps"}
    before = len(checker.problems)
    found = checker.mapping(path, value, STAGE_KINDS, owner, elsewhere)
    if "until" in found:
        until = read_until(checker, (*path, "until"), found.pop("until"), f"until of {owner}")
        found |= {"until": until} if until is not None else {}
    if len(checker.problems) == before:
        _check_stage(checker, path, found, owner)
    if "train" not in found and "freeze" not in found:
        return None
    return PlanStage(**found, number=number, location=checker.document.location(path), path=path)


def _check_stage(checker: Checker, path: KeyPath, found: Mapping[str, Any], owner: str) -> None:
    if ("train" in found) == ("freeze" in found):
        given = "both" if "train" in found else "neither"
        checker.note(path, f"{owner} has {given} of train and freeze; give one of the two")
    if "epochs" in found and "steps" in found:
        given = f"epochs {found['epochs']} and steps {found['steps']}"
        checker.note((*path, "steps"), f"{owner} has {given}; give one of the two")
    if "steps" in found and "until" in found:
        checker.note(
            (*path, "until"),
            f"{owner} is counted in steps, and until looks at the end of an epoch; give epochs",
        )
    if REST in found.get("train", ()) and len(found["train"]) > 1:
        checker.note(
            (*path, "train"), f"{owner} names weights beside {REST!r}, which it holds; give one"
        )
    if REST in found.get("freeze", ()):
        checker.note(
            (*path, "freeze"), f"{owner} freezes {REST!r}, which can only be trained; name it"
        )
    if found.get("cumulative") and ("freeze" in found or path[-1] == 0):
        why = "freezes: only train adds up" if "freeze" in found else "no stage stands before it"
        checker.note((*path, "cumulative"), f"{owner} is cumulative and {why}; drop cumulative")


def _check_lengths(checker: Checker, stages: list[PlanStage], given: Sequence[Any]) -> None:
    count = len(given)
    for stage in stages:
        # one that is misspelt, or no number, has been told
        tried = any(key not in STAGE_KINDS or key in LENGTHS for key in given[stage.number - 1])
        tried = tried or stage.until is not None
        if stage.unit is None and stage.number < count and not tried:
            message = (
                f"{stage.name} of {count} has no length; add epochs: 1, only the last may be open"
            )
            checker.note(stage.path, message)
    timed = [stage for stage in stages if stage.unit is not None]
    watched = next((stage for stage in stages if stage.until is not None), None)
    if watched is not None and any(stage.unit == "steps" for stage in stages):
        message = f"{watched.name} ends at an epoch; count all stages in epochs"
        checker.note((*watched.path, "until"), message)
        return
    other = next((stage for stage in timed if stage.unit != timed[0].unit), None)
    if other is not None:
        checker.note(
            (*other.path, str(other.unit)),
            f"{other.name} is counted in {other.unit} and {timed[0].name} in {timed[0].unit}; "
            "give all lengths in one",
        )
