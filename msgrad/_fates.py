"""The fate of a parameter under a train step as it stands: what becomes of it, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mindspore import Parameter, nn

from msgrad._claims import Record, see
from msgrad._paths import places
from msgrad._plan_fates import Fates
from msgrad._rates import rates_by_weight
from msgrad._step import TrainStep

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

    def __init__(self, step: TrainStep, rules: Fates, lost: Mapping[str, str]) -> None:
        self.rules, self.lost = rules, lost
        self.records = see(rules.net)
        self.step = step
        self.trains = set(step.trainable)
        self.rates = rates_by_weight(step.optimizer)
        self.kept = _kept_statistics(rules.net)
        self.things = {id(p): n for n, p in enumerate(rules.parameters.things)}

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
        if not record.design:
            return UNTRAINABLE, "the model"
        if record.claims:
            return FROZEN, record.claims[0].patterns
        if not record.parameter.requires_grad:
            return FROZEN, "requires_grad False"
        if not self.step._trainable.takes(record):
            return ASIDE, ""
        return STOPPED, self.lost.get(name, "")

    def _trained(self, record: Record, name: str) -> tuple[str, str]:
        thing = self.things[id(record.parameter)]
        rule = self.rules.last.get("hold rows", {}).get(thing)
        if rule is not None:
            rows = self.rules.says(rule, "hold rows")
            label = self.rules.rules[rule].label
            return (HELD, label) if rows is None else (TRAINS, f"rows {list(rows)} held, {label}")
        # only where unreached weights are allowed to stay
        return TRAINS, NO_GRADIENT if name in self.lost else ""

    def _updates(self, parameter: Parameter) -> tuple[str, ...]:
        thing = self.things[id(parameter)]
        fields = [field for field in self.rules.last if field.startswith("update ")]
        numbers = [self.rules.last[field].get(thing) for field in fields]
        return tuple(self.rules.rules[n].label for n in numbers if n is not None)


def _kept_statistics(net: nn.Cell) -> set[int]:
    """Find the statistics of norm cells that normalise with them and do not adapt them."""
    return {
        id(place.parameter)
        for place in places(net)
        if getattr(place.owner, "use_batch_statistics", None) is False or not place.owner.training
    }
