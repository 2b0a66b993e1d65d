"""What the stages of a plan train in one network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import Parameter, nn

from msgrad._matcher import NetPattern, show
from msgrad._plan_fates import Fates, Note, few
from msgrad._plan_rule import PlanRule, written
from msgrad._plan_stage import REST, PlanStage
from msgrad._stage import Stage
from msgrad._summary import inner_network


class Times:
    """The parameters that each stage trains, and what is wrong with the stages.

    Args:
        fates: What the rules say.
        stages: The stages, in order.

    Attributes:
        named: The parameters that each stage names or, where it trains the rest, takes.
        trained: The parameters that move in each stage; one entry for a plan without stages.
        problems: Stages that train or freeze nothing, or train what a rule keeps.
        sound: Whether there is no problem with any stage, so that what they train can be believed.
    """

    def __init__(self, fates: Fates, stages: Sequence[PlanStage]) -> None:
        self.fates = fates
        self.stages = stages
        self.named: list[set[int]] = []
        self.trained: list[set[int]] = []
        self.problems: list[Note] = []
        known = len(fates.problems)
        for stage in stages:
            before = len(fates.problems) + len(self.problems)
            named = self._named(stage)
            self.named.append(named)
            self.trained.append(self._trained(stage, named))
            if len(fates.problems) + len(self.problems) == before:
                self._check(stage)
        self.sound = not self.problems and len(fates.problems) == known
        if not stages:
            self.trained.append(fates.design - fates.frozen)

    def _named(self, stage: PlanStage) -> set[int]:
        fates = self.fates
        if stage.rest:
            before = set().union(*self.trained) if not stage.cumulative else set()
            return fates.design - fates.frozen - before
        key = "train" if stage.train else "freeze"
        path = (*stage.path, key)
        patterns = stage.train or stage.freeze
        meant = [p for p in patterns if _means_rest(p) and p not in fates.parameters.names]
        if meant:
            self._note(path, f"{stage.name} names {meant[0]!r}, which is no weight; write {REST!r}")
            return set()
        return fates.choose(path, stage.name, patterns) & fates.design

    def _trained(self, stage: PlanStage, named: set[int]) -> set[int]:
        if stage.freeze:
            return self.fates.design - self.fates.frozen - named
        return named.union(*self.trained) if stage.cumulative else named

    def _check(self, stage: PlanStage) -> None:
        named, trained, frozen = self.named[-1], self.trained[-1], self.fates.frozen
        key = "train" if stage.train else "freeze"
        path = (*stage.path, key)
        what = few(stage.train or stage.freeze)
        if stage.rest and not trained:
            self._note(path, f"{stage.name} trains the rest, and nothing is left; drop it")
        elif not named:
            self._note(
                path,
                f"{stage.name} ({key} {what}) takes no weight that the model made trainable; name "
                "one",
            )
        elif not trained:
            self._note(path, f"{stage.name} freezes {what} and leaves nothing to train; name less")
        elif stage.freeze and named <= frozen:
            self._note(
                path,
                f"{stage.name} freezes {what}, which {self._keepers(named)} already; name more, or "
                "drop it",
            )
        elif stage.train and named & frozen:
            both = named & frozen
            self._note(
                path,
                f"{stage.name} trains {few(self.fates.names(both), str)}, which "
                f"{self._keepers(both)}; unfreeze them behind that, or name them in no stage",
            )

    def _keepers(self, things: set[int]) -> str:
        last = self.fates.last["frozen"]
        numbers = sorted({last[thing] for thing in things})
        names = [self.fates.rules[number].name for number in numbers]
        return f"{' and '.join(names)} {'keeps' if len(names) == 1 else 'keep'}"

    def _note(self, path: Any, message: str) -> None:
        self.problems.append((path, message))


def _means_rest(pattern: Any) -> bool:
    words = str(pattern).casefold().replace("_", " ").replace("-", " ").split()
    return words in (["rest"], ["the", "rest"], ["therest"])


@dataclass(frozen=True)
class StagePattern(NetPattern):
    """What one stage of a plan trains or freezes, as a pattern.

    What the rest is, and what stages before trained, only the network says.
    """

    rules: tuple[PlanRule, ...]
    stages: tuple[PlanStage, ...]

    def chosen(self, net: nn.Cell) -> Iterable[Parameter]:
        """Return what the last of the stages names."""
        stage = self.stages[-1]
        rules = [rule for rule in self.rules if rule.kind in ("freeze", "unfreeze")]
        fates = Fates(rules, inner_network(net))
        times = Times(fates, self.stages)
        chosen = times.named[-1] if stage.freeze else times.trained[-1]
        return [fates.parameters.things[thing] for thing in sorted(chosen)]

    def __repr__(self) -> str:
        stage = self.stages[-1]
        more = " and what trained before" if stage.cumulative else ""
        patterns = stage.train or stage.freeze
        own = show(patterns[0]) if len(patterns) == 1 else f"[{', '.join(map(show, patterns))}]"
        return ("the rest" if stage.rest else own) + more


def stages_of(
    rules: tuple[PlanRule, ...], stages: tuple[PlanStage, ...], *, plain: bool
) -> list[Stage]:
    """Return the stages for a `Schedule`; `plain` keeps patterns that stand for themselves."""
    found = []
    for number, stage in enumerate(stages, 1):
        pattern: Any = StagePattern(rules, stages[:number])
        if plain and not stage.rest and not stage.cumulative:
            pattern = written(stage.train or stage.freeze)
        found.append(
            Stage(
                **{"train" if stage.train else "freeze": pattern},
                epochs=stage.epochs,
                steps=stage.steps,
                statistics=stage.statistics is not False,
                dropout=stage.dropout is not False,
            )
        )
    return found
