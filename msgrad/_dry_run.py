"""The dry run of a config: what becomes of every parameter in every stage, before anything runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mindspore import Tensor, nn

from msgrad._claims import see
from msgrad._entering import enter_as_next_call
from msgrad._fates import NO_GRADIENT, Fate, Judge
from msgrad._paths import paths_of
from msgrad._plan_fates import Fates
from msgrad._reach import Reach, find_reach
from msgrad._run import Run, each_stage
from msgrad._slots import own_parameters, owner_of
from msgrad._step import TrainStep
from msgrad._trainable import count

_LOG = logging.getLogger("msgrad")
TO_THE_END = "to the end"


@dataclass(frozen=True)
class StageFates:
    """What becomes of all parameters under one train step in one stage.

    Attributes:
        stage: The stage, from 1; None where the plan has none.
        length: How long it is: ``2 epochs``, or ``to the end``.
        step: The name of the train step.
        fates: One for each parameter, in network order.
        state_bytes: What the optimizer of this stage keeps for its weights.
        state_bytes_of_all: What it would keep for all weights that the model made trainable.
    """

    stage: int | None
    length: str
    step: str
    fates: tuple[Fate, ...]
    state_bytes: int
    state_bytes_of_all: int

    def total(self, *, trains: bool) -> tuple[int, int]:
        """Count parameters and their bytes: those that train, or all others."""
        own = [fate for fate in self.fates if fate.moves == trains]
        return len(own), sum(fate.bytes for fate in own)


@dataclass(frozen=True)
class TakenBy:
    """What one rule takes.

    Attributes:
        rule: The rule and its place in the file.
        does: The rule as it was written.
        takes: Parameters, or cells for what stops and scales.
        cells: Whether it takes cells.
    """

    rule: str
    does: str
    takes: tuple[str, ...]
    cells: bool


@dataclass(frozen=True)
class DryRun:
    """What a config does.

    Attributes:
        name: The name of the run.
        rules: What each rule of the plan takes, in order.
        stages: Every train step in every stage, in order.
        reach: Whether the gradient graph was compiled to find what a gradient reaches; if not, only
            the weights inside of what a rule stops are known to get none.
    """

    name: str
    rules: tuple[TakenBy, ...]
    stages: tuple[StageFates, ...]
    reach: bool

    def to_json(self) -> str:
        """Return all of it as JSON."""
        stages = []
        for stage in self.stages:
            own = asdict(stage)
            for word, trains in (("trainable", True), ("held", False)):
                count, size = stage.total(trains=trains)
                own[word], own[f"{word}_bytes"] = count, size
            stages.append(own)
        content = {
            "name": self.name,
            "reach": self.reach,
            "rules": [asdict(rule) for rule in self.rules],
            "stages": stages,
        }
        return json.dumps(content, indent=2)


def dry_run(run: Run, inputs: Sequence[Tensor] | None = None) -> DryRun:
    """Say what a run would do. The optimizers are really made; no step is compiled.

    Args:
        run: A run that was built and not trained.
        inputs: A batch, with which the gradient graph of each step is compiled, to find what a
            gradient reaches; None compiles nothing.

    Returns:
        The fate of every parameter.

    Raises:
        ArgumentError: Nothing is left to train in a stage.
        ConflictError: ``unreached: error``, and a trainable weight gets no gradient.
    """
    rules = Fates(run.config.plan.rules, run.net)
    stops = _stopped_by(rules)
    stages = [
        _stage(run, name, step, number, rules, stops, inputs)
        for number in each_stage(run)
        for name, step in run.steps.items()
    ]
    taken = tuple(_taken(rules, number) for number in range(len(rules.rules)))
    return DryRun(run.config.name, taken, tuple(stages), inputs is not None)


def _taken(rules: Fates, number: int) -> TakenBy:
    rule, things = rules.rules[number], rules.taken[number]
    if rule.of_cells:
        names = [rules.cells.paths[thing][0] for thing in sorted(things)]
    else:
        names = rules.names(things)
    return TakenBy(rule.label, _written(rule.to_dict()), tuple(names), rule.of_cells)


def _written(rule: dict[str, Any]) -> str:
    (kind, patterns), *fields = rule.items()
    shown = ", ".join(map(str, patterns)) if isinstance(patterns, list) else str(patterns)
    more = ", ".join(f"{key}: {value}" for key, value in fields)
    return f"{kind} {shown}" + (f" ({more})" if more else "")


def _stopped_by(rules: Fates) -> dict[str, str]:
    """Name the weights that lie wholly in a cell behind which a rule stops the gradient."""
    decided = rules.last.get("stop at", {})
    cut = [
        (path, rules.rules[rule].label)
        for cell, rule in decided.items()
        if rules.says(rule, "stop at") == "output"
        for path in rules.cells.paths[cell]
    ]
    found = {}
    for parameter, ways in paths_of(rules.net).items():
        by = [next((label for p, label in cut if way.startswith(f"{p}.")), None) for way in ways]
        if by and all(by):
            found[str(parameter.name)] = str(by[0])
    return found


# --- one step in one stage


def _stage(
    run: Run,
    name: str,
    step: TrainStep,
    number: int | None,
    rules: Fates,
    stops: dict[str, str],
    inputs: Sequence[Tensor] | None,
) -> StageFates:
    lost = dict(stops)
    if inputs is not None:
        found = find_reach(step.network, inputs)
        lost = {n: stops.get(n, NO_GRADIENT) for n in found.unreached}
    _enter(run, step, lost)
    judge = Judge(step, rules, lost)
    # network order, each once
    fates = tuple(judge.fate(parameter) for parameter in run.net.get_parameters())
    every = [r.parameter for r in see(run.net).values() if r.design]
    return StageFates(
        number,
        _length(run, number),
        name,
        fates,
        _state_bytes(step.optimizer, run.net),
        _state_bytes(run.makers[name](every), run.net),
    )


def _length(run: Run, number: int | None) -> str:
    stage = None if run.schedule is None or number is None else run.schedule.stages[number - 1]
    if stage is None:
        return TO_THE_END
    if stage.unit is None:
        # one for which no epoch is left never begins; how many steps there are, data tell
        done = sum(each.epochs or 0 for each in run.schedule.stages[:-1]) if run.schedule else 0
        return TO_THE_END if done < run.config.epoch_size else count(0, "epoch")
    return count(stage.length or 0, stage.unit.removesuffix("s"))


def _enter(run: Run, step: TrainStep, lost: dict[str, str]) -> None:
    """Make the optimizer that the next call would have, without what gets no gradient."""
    if run.config.unreached == "allow":
        step.prepare()
        return
    names = [str(p.name) for p in run.net.get_parameters() if p.name not in lost]
    level = _LOG.level
    # what it would say of weights without a gradient is what the dry run tells
    _LOG.setLevel(logging.ERROR)
    try:
        enter_as_next_call(step, (), lambda: Reach(names, [], list(lost)))
    finally:
        _LOG.setLevel(level)


def _state_bytes(optimizer: nn.Cell, net: nn.Cell) -> int:
    weights = {str(p.name) for p in net.get_parameters()}
    own = own_parameters(optimizer, net.get_parameters())
    return sum(p.nbytes for p in own if owner_of(str(p.name), weights) is not None)
