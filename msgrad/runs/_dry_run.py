"""The dry run of a config: what becomes of every parameter in every stage, before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mindspore import Tensor, nn

from msgrad._files import as_json
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
        by: What decides it: a rule with its line in the file, a stage, the model.
        rate: Its learning rate, if the optimizer has it.
        decay: Its weight decay, likewise.
        updates: The update rules that change it.

    Examples:
        >>> Fate("0.bias", (8,), 32, "frozen", "rule 1 (run.yaml:1)").moves
        False
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

    @property
    def can_train(self) -> bool:
        """Whether the model made it something that trains."""
        return self.fate not in (ADAPTS, KEPT, UNTRAINABLE)

    def __str__(self) -> str:
        said = self.fate
        if self.rate is not None:
            said += f" at {self.rate:g}" + (f", decay {self.decay:g}" if self.decay else "")
        # the stage is that of the column it stands in
        if self.by and self.by != "the model" and not self.by.startswith("stage "):
            joint = ", " if self.moves else ": " if self.by == NO_GRADIENT else " by "
            said += joint + _short(self.by)
        return said + "".join(f", changed by {_short(label)}" for label in self.updates)


def _short(label: str) -> str:
    """Leave the line in the file to the table of the rules."""
    return label.partition(" (")[0].partition(" of the ")[0]


def _outcomes(step: TrainStep, rules: ResolvedRules, lost: Mapping[str, str]) -> Iterator[Fate]:
    """Say of each parameter what becomes of it under a step as it stands.

    Args:
        step: The step, brought to its stage.
        rules: What the rules of the plan say of the network.
        lost: What no gradient reaches, by name, and what stops it.
    """
    records, rates = records_of(rules.net), rates_by_weight(step.optimizer)
    trains, kept = set(step.trainable), _kept_statistics(rules.net)
    indices = {id(p): n for n, p in enumerate(rules.parameters.members)}
    # network order, each once
    for parameter in rules.net.get_parameters():
        key, name = id(parameter), str(parameter.name)
        if name in trains:
            fate, by = _trained(rules, indices[key], NO_GRADIENT if name in lost else "")
        else:
            fate, by = _at_rest(step, records[key], key in kept, lost.get(name, ""))
        rate = rates.get(key) if name in trains else None
        lr, decay = (None, None) if rate is None else (rate.lr, rate.weight_decay)
        updates = _updates(rules, indices[key])
        yield Fate(name, tuple(parameter.shape), parameter.nbytes, fate, by, lr, decay, updates)


def _at_rest(step: TrainStep, record: Record, kept: bool, stop: str) -> tuple[str, str]:
    if record.statistic and record.floating:
        return (KEPT if kept else ADAPTS), "the model"
    if record.claims:
        return FROZEN, record.claims[0].patterns
    if not record.design:
        return UNTRAINABLE, "the model"
    if not record.parameter.requires_grad:
        return FROZEN, "requires_grad False"
    return (STOPPED, stop) if step.takes(record) else (ASIDE, "")


def _trained(rules: ResolvedRules, index: int, unreached: str) -> tuple[str, str]:
    rule = rules.winner.get("hold rows", {}).get(index)
    if rule is None:
        # only where unreached weights are allowed to stay
        return TRAINS, unreached
    rows, label = rules.says(rule, "hold rows"), rules.rules[rule].label
    return (HELD, label) if rows is None else (TRAINS, f"rows {list(rows)} held, {label}")


def _updates(rules: ResolvedRules, index: int) -> tuple[str, ...]:
    found = [rules.winner[name] for name in rules.winner if name.startswith("update ")]
    return tuple(rules.rules[by[index]].label for by in found if index in by)


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

    Examples:
        >>> fates = (Fate("0.bias", (8,), 32, "frozen"), Fate("2.bias", (2,), 8, "trains"))
        >>> StageFates(None, "to the end", "train", fates, 16, 80).total(trains=False)
        (1, 32)
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
        rule: The rule and its line in the file.
        does: The rule as it was written.
        takes: Parameters, or cells for what stops and scales.
        cells: Whether it takes cells.

    Examples:
        >>> TakenBy("rule 1", "freeze 0", ("0.weight", "0.bias"), False).takes
        ('0.weight', '0.bias')
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

    Examples:
        >>> DryRun("first", (), (), False).to_json().splitlines()[1]
        '  "name": "first",'
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
        return as_json(content)


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

    Examples:
        >>> from pathlib import Path
        >>> from msgrad.runs import build, dry_run, load_config
        >>> _ = Path("task.py").write_text('''
        ... import numpy as np
        ... from mindspore import dataset, nn
        ... def network(config):
        ...     return nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        ... def loss():
        ...     return nn.MSELoss()
        ... def datasets(config):
        ...     rows = np.ones((8, 4), np.float32), np.ones((8, 2), np.float32)
        ...     return dataset.NumpySlicesDataset(rows).batch(config.batch_size), None
        ... ''')
        >>> _ = Path("run.yaml").write_text("{task: task.py, plan: [{freeze: '0'}], batch_size: 4}")
        >>> found = dry_run(build(load_config("run.yaml"), dry=True))
        >>> {fate.name: fate.fate for fate in found.stages[0].fates}
        {'0.weight': 'frozen', '0.bias': 'frozen', '2.weight': 'trains', '2.bias': 'trains'}
        >>> found.rules[0].takes
        ('0.weight', '0.bias')
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
    every = [r.parameter for r in records_of(run.net).values() if r.design]
    return StageFates(
        number,
        _length(run, number),
        name,
        tuple(_outcomes(step, rules, lost)),
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
