"""A bound rule: one rule and the weights it changes, planned from the user's dict of rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mindspore import Parameter, Tensor, nn

from msgrad._text import few
from msgrad.errors import ArgumentError, ArgumentTypeError, FrozenWeightError
from msgrad.freezing import Record, records_of
from msgrad.network import Pattern, paths_of, refuse_lent, select, show
from msgrad.updates._readable import COPIES, Rule, check_callable, companions_of, takes_step


@dataclass(frozen=True)
class BoundRule:
    """One rule and all that it changes.

    Attributes:
        label: How the rule is named in messages.
        position: Its number among the rules, overruled ones included.
        rule: The function of a weight.
        weights: What it changes, in network order.
        beside: What goes into the rule beside each weight, one sequence per kind.
        owned: Those of them that the update owns and saves, one per weight or none.
        takes_step: Whether the rule also wants the step number.
    """

    label: str
    position: int
    rule: Rule
    weights: tuple[Parameter, ...]
    beside: tuple[tuple[Tensor, ...], ...] = ()
    owned: tuple[Parameter, ...] = ()
    takes_step: bool = False

    def at(self, positions: Iterable[int]) -> BoundRule:
        """Return the same rule over some of the weights only."""
        chosen = list(positions)
        return replace(
            self,
            weights=tuple(self.weights[i] for i in chosen),
            beside=tuple(tuple(kind[i] for i in chosen) for kind in self.beside),
            owned=tuple(self.owned[i] for i in chosen if self.owned),
        )

    @property
    def shared(self) -> list[tuple[str, Parameter]]:
        """The rule's own Parameters, which all its weights share, and their paths in it."""
        if not isinstance(self.rule, nn.Cell):
            return []
        return list(self.rule.parameters_and_names())

    @property
    def state(self) -> list[Parameter]:
        """All that the rule may change beside the weights."""
        return [parameter for _, parameter in self.shared] + list(self.owned)


def bind(net: nn.Cell, rules: Mapping[Pattern, Rule], *, force: bool) -> list[BoundRule]:
    """Give each weight to the last rule that matches it.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: A rule selects no weight that is trainable by design, or takes more than it
            gets.
        ArgumentTypeError: ``rules`` is no dict of functions.
        FrozenWeightError: A weight is frozen and ``force`` is False.
    """
    if not isinstance(rules, Mapping) or not rules:
        raise ArgumentTypeError(f"rules {rules!r} hold no rule; give a dict {{pattern: fn}}")
    records = records_of(net)
    refuse_lent((record.parameter for record in records.values()), "a weight update would be lost")
    last = _last_rule(net, rules)
    if not force:
        check_frozen(net, [records[key].parameter for key in last if records[key].can_train])
    paths = {id(parameter): where[0] for parameter, where in paths_of(net).items()}
    bound_rules = []
    for position, (pattern, rule) in enumerate(rules.items()):
        own = [r for key, r in records.items() if last.get(key) == position]
        weights = [r.parameter for r in own if r.can_train]
        others = [r.parameter for r in own if not r.can_train]
        for one, taken in ((rule, weights), (getattr(rule, COPIES, None), others)):
            if taken:
                where = [paths[id(weight)] for weight in taken]
                bound_rules.append(_bind_one(show(pattern), position, one, taken, where))
                _check_state(bound_rules[-1], records)
    name_states(bound_rules, "updates")
    for key in last:
        records[key].has_moved = True
    return bound_rules


def _last_rule(net: nn.Cell, rules: Mapping[Pattern, Rule]) -> dict[int, int]:
    """Return the position of the last rule for each weight by its id."""
    records = records_of(net)
    last: dict[int, int] = {}
    for position, (pattern, rule) in enumerate(rules.items()):
        check_callable(show(pattern), rule)
        found = select(net, pattern)
        all_of_it = hasattr(rule, COPIES)
        taken = [id(p) for p in found if all_of_it or records[id(p)].design]
        if not taken:
            raise ArgumentError(
                f"rule {show(pattern)} matches {len(found)} parameters, none of them trainable by "
                f"design: {', '.join(found.names[:3])}; name a weight"
            )
        last.update(dict.fromkeys(taken, position))
    return last


def _check_state(bound: BoundRule, records: Mapping[int, Record]) -> None:
    inside = [parameter.name for parameter in bound.state if id(parameter) in records]
    if inside:
        raise ArgumentError(
            f"rule {bound.label} keeps the network's own {inside[0]!r} as its state; return it "
            "from companion_of(self, parameter, path), and hold it in no attribute"
        )


def _bind_one(
    label: str, position: int, rule: Rule, weights: Sequence[Parameter], paths: Sequence[str]
) -> BoundRule:
    companions = [companions_of(rule, w, path) for w, path in zip(weights, paths, strict=True)]
    kinds = list(zip(*companions, strict=True))
    owned = tuple(value for kind in kinds for value, ours in kind if ours)
    for state in owned:
        state.requires_grad = False
    beside = tuple(tuple(value for value, _ in kind) for kind in kinds)
    step = takes_step(label, rule, 1 + len(kinds))
    return BoundRule(label, position, rule, tuple(weights), beside, owned, step)


def name_states(bound_rules: Sequence[BoundRule], prefix: str) -> None:
    """Name the states of the rules; no two parameters of one graph may have one name."""
    for bound in bound_rules:
        for weight, state in zip(bound.weights, bound.owned, strict=False):
            state.name = f"{prefix}.{bound.position}.{weight.name}"
        for path, state in bound.shared:
            state.name = f"{prefix}.{bound.position}.{path}"


def check_there(net: nn.Cell, weights: Sequence[Parameter], kind: str) -> None:
    """Refuse to go on with weights whose cell was exchanged.

    Raises:
        ArgumentError: One of the weights is not in the network any more.
    """
    there = {id(parameter) for parameter in net.get_parameters()}
    gone = [str(weight.name) for weight in weights if id(weight) not in there]
    if gone:
        raise ArgumentError(
            f"{kind} is over {few(gone)}, whose cell was exchanged; make a new {kind} over the "
            "network, and a new TrainStep with it"
        )


def check_frozen(net: nn.Cell, weights: Sequence[Parameter]) -> None:
    """Refuse to change a weight that is frozen.

    Raises:
        FrozenWeightError: One of the weights is frozen.
    """
    records = records_of(net)
    frozen = [str(weight.name) for weight in weights if not records[id(weight)].trains]
    if frozen:
        raise FrozenWeightError(
            f"update aims at {len(frozen)} frozen of {len(weights)} weights: "
            f"{', '.join(frozen[:3])}; unfreeze them, or pass force=True"
        )


def names_of(net: nn.Cell, bound_rules: Sequence[BoundRule]) -> list[str]:
    """Return the names of the weights that are changed, in network order."""
    changed = {id(weight) for bound in bound_rules for weight in bound.weights}
    return [str(record.parameter.name) for key, record in records_of(net).items() if key in changed]


def batches(bound_rules: Sequence[BoundRule], most: int) -> Iterator[list[BoundRule]]:
    """Cut and gather the works into lists of at most so many weights in all."""
    batch, room = [], most
    for bound in bound_rules:
        start, count = 0, len(bound.weights)
        while start < count:
            stop = min(start + room, count)
            batch.append(bound.at(range(start, stop)))
            room -= stop - start
            start = stop
            if room == 0:
                yield batch
                batch, room = [], most
    if batch:
        yield batch
