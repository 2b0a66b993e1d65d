"""The dry run of a config: what becomes of every parameter in every stage, before anything runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mindspore import Parameter, Tensor, nn

from msgrad._text import count
from msgrad.freezing import Record, records_of
from msgrad.network import Reach, find_reach, paths_of, places
from msgrad.optim import own_parameters, owner_of, rates_by_weight
from msgrad.plans import ResolvedRules
from msgrad.runs._build import Run, each_stage
from msgrad.training import TrainStep

TRAINS, HELD, FROZEN, STOPPED = "trains", "held", "frozen", "stopped"
NO_GRADIENT = "no gradient reaches it"
ASIDE, ADAPTS, KEPT, UNTRAINABLE = "left to another step", "adapts", "kept", "untrainable"


@dataclass(frozen=True)
class Fate:
    """What becomes of one parameter in one stage.

    Attributes:
        name: Its name.
        shape: Its shape.
        bytes: Its size.
        fate: ``trains``, ``held`` at run time, ``frozen``, ``stopped`` where no gradient reaches
            it, ``left to another step``, ``untrainable`` by the model, or, of norm statistics,
            ``adapts`` or ``kept``.
        by: What decides it: a rule with its place in the file, a stage, the model.
        rate: Its learning rate, if the optimizer has it.
        decay: Its weight decay, likewise.
        updates: The update rules that change it.
    """

    name: str
    shape: tuple[int, ...]
    bytes: int
    fate: str
    by: str = ""
    rate: float | None = None
    decay: float | None = None
    updates: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether the optimizer moves it."""
        return self.fate == TRAINS

    @property
    def is_statistic(self) -> bool:
        """Whether it is a running statistic of a norm."""
        return self.fate in (ADAPTS, KEPT)


class Judge:
    """Says the fate of each parameter under one step as it stands.

    Args:
        step: The step, brought to its stage.
        rules: What the rules of the plan say of the network.
        lost: What no gradient reaches, by name, and what stops it.
    """

    def __init__(self, step: TrainStep, rules: ResolvedRules, lost: Mapping[str, str]) -> None:
        self.rules, self.lost = rules, lost
        self.records = records_of(rules.net)
        self.step = step
        self.trains = set(step.trainable)
        self.rates = rates_by_weight(step.optimizer)
        self.kept = _kept_statistics(rules.net)
        self.indices = {id(p): n for n, p in enumerate(rules.parameters.members)}

    def fate(self, parameter: Parameter) -> Fate:
        """Return the fate of a parameter of the network."""
        record, name = self.records[id(parameter)], str(parameter.name)
        fate, by = self._kind(record, name)
        rate = self.rates.get(id(parameter)) if name in self.trains else None
        return Fate(
            name,
            tuple(parameter.shape),
            parameter.nbytes,
            fate,
            by,
            None if rate is None else rate.lr,
            None if rate is None else rate.weight_decay,
            self._updates(parameter),
        )

    def _kind(self, record: Record, name: str) -> tuple[str, str]:
        if name in self.trains:
            return self._trained(record, name)
        if record.statistic and record.floating:
            return (KEPT if id(record.parameter) in self.kept else ADAPTS), "the model"
        if record.claims:
            return FROZEN, record.claims[0].patterns
        if not record.design:
            return UNTRAINABLE, "the model"
        if not record.parameter.requires_grad:
            return FROZEN, "requires_grad False"
        if not self.step.takes(record):
            return ASIDE, ""
        return STOPPED, self.lost.get(name, "")

    def _trained(self, record: Record, name: str) -> tuple[str, str]:
        index = self.indices[id(record.parameter)]
        rule = self.rules.winner.get("hold rows", {}).get(index)
        if rule is not None:
            rows = self.rules.says(rule, "hold rows")
            label = self.rules.rules[rule].label
            return (HELD, label) if rows is None else (TRAINS, f"rows {list(rows)} held, {label}")
        # only where unreached weights are allowed to stay
        return TRAINS, NO_GRADIENT if name in self.lost else ""

    def _updates(self, parameter: Parameter) -> tuple[str, ...]:
        index = self.indices[id(parameter)]
        fields = [field for field in self.rules.winner if field.startswith("update ")]
        numbers = [self.rules.winner[field].get(index) for field in fields]
        return tuple(self.rules.rules[n].label for n in numbers if n is not None)


def _kept_statistics(net: nn.Cell) -> set[int]:
    """Find the statistics of norm cells that normalise with them and do not adapt them."""
    return {
        id(place.parameter)
        for place in places(net)
        if getattr(place.owner, "use_batch_statistics", None) is False or not place.owner.training
    }


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
    rules = ResolvedRules(run.config.plan.rules, run.net)
    stops = _stopped_by(rules)
    stages = [
        _stage(run, name, step, number, rules, stops, inputs)
        for number in each_stage(run)
        for name, step in run.steps.items()
    ]
    matched = tuple(_taken(rules, number) for number in range(len(rules.rules)))
    return DryRun(run.config.name, matched, tuple(stages), inputs is not None)


def _taken(rules: ResolvedRules, number: int) -> TakenBy:
    rule, indices = rules.rules[number], rules.matched[number]
    if rule.of_cells:
        names = [rules.cells.paths[index][0] for index in sorted(indices)]
    else:
        names = rules.names(indices)
    return TakenBy(rule.label, _written(rule.to_dict()), tuple(names), rule.of_cells)


def _written(rule: dict[str, Any]) -> str:
    (kind, patterns), *fields = rule.items()
    shown = ", ".join(map(str, patterns)) if isinstance(patterns, list) else str(patterns)
    more = ", ".join(f"{key}: {value}" for key, value in fields)
    return f"{kind} {shown}" + (f" ({more})" if more else "")


def _stopped_by(rules: ResolvedRules) -> dict[str, str]:
    """Name the weights that lie wholly in a cell behind which a rule stops the gradient."""
    decided = rules.winner.get("stop at", {})
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
    rules: ResolvedRules,
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
    every = [r.parameter for r in records_of(run.net).values() if r.design]
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
    if stage is None or stage.unit is None:
        return TO_THE_END
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
        step.prepare_with(lambda: Reach(names, [], list(lost)))
    finally:
        _LOG.setLevel(level)


def _state_bytes(optimizer: nn.Cell, net: nn.Cell) -> int:
    weights = {str(p.name) for p in net.get_parameters()}
    own = own_parameters(optimizer, net.get_parameters())
    return sum(p.nbytes for p in own if owner_of(str(p.name), weights) is not None)
