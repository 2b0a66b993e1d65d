"""What a plan puts into a train step: groups, holds and updates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from mindspore import Parameter, nn

from msgrad.errors import ArgumentError
from msgrad.freezing import Claim, make_claims
from msgrad.network import NetPattern, Selection
from msgrad.optim import HoldOptimizer, as_one, made_with, param_groups
from msgrad.plans._resolve import ResolvedRules, ResolvedStages, shown
from msgrad.plans._user_code import Functions
from msgrad.updates import WeightUpdates


class RuleWeights(NetPattern):
    """The weights of one update rule that no later one overrides, as a pattern."""

    def __init__(self, text: str, parameters: Iterable[Parameter]) -> None:
        self._text = text
        self._parameters = list(parameters)

    def chosen(self, net: nn.Cell) -> Iterable[Parameter]:
        """Return the weights."""
        return self._parameters

    def __repr__(self) -> str:
        return self._text


def first_stage(times: ResolvedStages, own: set[int]) -> AbstractContextManager[object]:
    """Keep what the first stage does not train, while a step makes its first optimizer.

    So there is never an optimizer with the state of all weights.
    """
    resolved = times.resolved
    kept = [
        resolved.records[index] for index in resolved.design - resolved.frozen - times.trained[0]
    ]
    if not times.stages or not kept or not own & times.trained[0]:
        return nullcontext()
    stage = times.stages[0]
    wishes = {"statistics": stage.statistics is not False, "dropout": stage.dropout is not False}
    return make_claims(resolved.net, [(Claim(stage.label, **wishes), kept)])


class StepParts:
    """Makes the parts of one step.

    Args:
        resolved: What the rules say.
        functions: Finds the functions of the updates.
        only: The ids of the parameters that the step trains, or None for all.

    Attributes:
        own: The numbers of these parameters.
    """

    def __init__(
        self, resolved: ResolvedRules, functions: Functions, only: Collection[int] | None
    ) -> None:
        self._resolved = resolved
        self._functions = functions
        indices = enumerate(resolved.parameters.members)
        self.own = {n for n, p in indices if only is None or id(p) in only}

    def optimizer(
        self, make: Callable[[Any], nn.Cell], lr: Any, weight_decay: float
    ) -> Callable[[list[Parameter]], nn.Cell]:
        """Return the callable that a `TrainStep` makes its optimizers with.

        Raises:
            ArgumentError: There are group rules and no rate.
        """
        rules, holds = self._groups(), self._holds()
        if rules and lr is None:
            raise ArgumentError(
                "lr None cannot be scaled by the group rules of the plan; give "
                "train_step(…, lr=0.01)"
            )
        if not callable(make) or isinstance(make, nn.Cell) or not (rules or holds):
            return make  # what is no callable, TrainStep refuses

        def made(parameters: list[Parameter], **settings: Any) -> nn.Cell:
            given: Any = parameters
            if rules:
                net = self._resolved.net
                given = param_groups(
                    net,
                    rules,
                    lr=settings.get("lr", lr),
                    weight_decay=settings.get("weight_decay", weight_decay),
                    parameters=parameters,
                )
            return _holding(as_one(made_with(make, given, settings, grouped=bool(rules))), holds)

        # what can be called with the parameters alone is seen by its signature
        made.takes_settings = True  # pyright: ignore[reportFunctionMemberAccess]
        made.__wrapped__ = make  # pyright: ignore[reportFunctionMemberAccess]
        return made

    def updates(self) -> list[WeightUpdates]:
        """Return the updates of the plan, one for each point of a step."""
        resolved = self._resolved
        found: dict[tuple[str, bool], dict[Any, Any]] = {}
        for number, rule in enumerate(resolved.rules):
            if rule.kind == "update":
                winner = resolved.winner[f"update {rule.when}"]
                own = [
                    t for t in sorted(resolved.matched[number] & self.own) if winner[t] == number
                ]
                if own:
                    text = shown(rule.patterns) + (f" ({rule.location})" if rule.location else "")
                    weights = RuleWeights(text, [resolved.parameters.members[t] for t in own])
                    key = (rule.when, bool(rule.fields.get("force")))
                    function = self._functions.of(rule.fields["fn"], rule.fields.get("args"))
                    found.setdefault(key, {})[weights] = function
        return [
            WeightUpdates(resolved.net, rules, when=when, force=force)
            for (when, force), rules in found.items()
        ]

    def _groups(self) -> dict[Selection, dict[str, float]]:
        """Return disjoint selections of the weights that group rules say the same of."""
        resolved, same = self._resolved, {}
        for index in sorted(self.own):
            own = tuple((f, resolved.value(f, index)) for f in ("lr_scale", "weight_decay"))
            said = tuple((f, value) for f, value in own if value is not None)
            if said:
                same.setdefault(said, []).append(resolved.parameters.members[index])
        return {Selection(weights): dict(said) for said, weights in same.items()}

    def _holds(self) -> dict[str, Any]:
        """Return the rows to hold by the name of the weight; None is the whole weight."""
        resolved = self._resolved
        return {
            str(resolved.parameters.members[index].name): resolved.value("hold rows", index)
            for index in sorted(self.own & resolved.winner.get("hold rows", {}).keys())
        }


def _holding(optimizer: nn.Cell, holds: Mapping[str, Any]) -> nn.Cell:
    """Hold what a hold rule takes among the weights of an optimizer."""
    if not hasattr(optimizer, "parameters"):
        return optimizer  # TrainStep refuses it
    there = {str(parameter.name) for parameter in optimizer.parameters}
    own = {name: rows for name, rows in holds.items() if name in there}
    if not own:
        return optimizer
    holder = optimizer
    if not isinstance(holder, HoldOptimizer):
        holder = HoldOptimizer(optimizer, may_hold=list(own))
    for name, rows in own.items():
        if rows is None:
            holder.hold(name)
        else:
            holder.hold_rows(name, list(rows))
    return holder
