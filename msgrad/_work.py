"""Work: one rule and the weights it changes, planned from the user's dict of rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mindspore import Parameter, Tensor, nn

from msgrad._claims import Record, see
from msgrad._errors import ArgumentError, ArgumentTypeError, FrozenWeightError
from msgrad._paths import paths_of
from msgrad._rules import Rule, check_callable, companions_of, takes_step
from msgrad._select import Pattern, select, show


@dataclass(frozen=True)
class Work:
    """One rule and all that it changes.

    Attributes:
        label: How the rule is named in messages.
        place: Its position among the rules, overruled ones included.
        rule: The function of a weight.
        weights: What it changes, in network order.
        beside: What goes into the rule beside each weight, one sequence per kind.
        owned: Those of them that the update owns and saves, one per weight or none.
        takes_step: Whether the rule also wants the step number.
    """

    label: str
    place: int
    rule: Rule
    weights: tuple[Parameter, ...]
    beside: tuple[tuple[Tensor, ...], ...] = ()
    owned: tuple[Parameter, ...] = ()
    takes_step: bool = False

    def at(self, places: Iterable[int]) -> Work:
        """Return the same rule over some of the weights only."""
        chosen = list(places)
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


def plan_works(net: nn.Cell, rules: Mapping[Pattern, Rule], *, force: bool) -> list[Work]:
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
    records = see(net)
    last = _last_rule(net, rules)
    if not force:
        check_frozen(net, [records[key].parameter for key in last])
    paths = {id(parameter): where[0] for parameter, where in paths_of(net).items()}
    works = []
    for place, (pattern, rule) in enumerate(rules.items()):
        weights = [r.parameter for key, r in records.items() if last.get(key) == place]
        if weights:
            where = [paths[id(weight)] for weight in weights]
            works.append(_work(show(pattern), place, rule, weights, where))
            _check_state(works[-1], records)
    name_states(works, "updates")
    for key in last:
        records[key].has_moved = True
    return works


def _last_rule(net: nn.Cell, rules: Mapping[Pattern, Rule]) -> dict[int, int]:
    """Return the place of the last rule for each weight by its id."""
    records = see(net)
    last: dict[int, int] = {}
    for place, (pattern, rule) in enumerate(rules.items()):
        check_callable(show(pattern), rule)
        found = select(net, pattern)
        taken = [id(parameter) for parameter in found if records[id(parameter)].design]
        if not taken:
            raise ArgumentError(
                f"rule {show(pattern)} matches {len(found)} parameters, none of them trainable by "
                f"design: {', '.join(found.names[:3])}; name a weight"
            )
        last.update(dict.fromkeys(taken, place))
    return last


def _check_state(work: Work, records: Mapping[int, Record]) -> None:
    inside = [parameter.name for parameter in work.state if id(parameter) in records]
    if inside:
        raise ArgumentError(
            f"rule {work.label} keeps the network's own {inside[0]!r} as its state; return it from "
            "companion_of(self, parameter, path), and hold it in no attribute"
        )


def _work(
    label: str, place: int, rule: Rule, weights: Sequence[Parameter], paths: Sequence[str]
) -> Work:
    companions = [companions_of(rule, w, path) for w, path in zip(weights, paths, strict=True)]
    kinds = list(zip(*companions, strict=True))
    owned = tuple(value for kind in kinds for value, ours in kind if ours)
    for state in owned:
        state.requires_grad = False
    beside = tuple(tuple(value for value, _ in kind) for kind in kinds)
    step = takes_step(label, rule, 1 + len(kinds))
    return Work(label, place, rule, tuple(weights), beside, owned, step)


def name_states(works: Sequence[Work], prefix: str) -> None:
    """Name the states of the rules; no two parameters of one graph may have one name."""
    for work in works:
        for weight, state in zip(work.weights, work.owned, strict=False):
            state.name = f"{prefix}.{work.place}.{weight.name}"
        for path, state in work.shared:
            state.name = f"{prefix}.{work.place}.{path}"


def check_frozen(net: nn.Cell, weights: Sequence[Parameter]) -> None:
    """Refuse to change a weight that is frozen.

    Raises:
        FrozenWeightError: One of the weights is frozen.
    """
    records = see(net)
    frozen = [str(weight.name) for weight in weights if not records[id(weight)].trains]
    if frozen:
        raise FrozenWeightError(
            f"update aims at {len(frozen)} frozen of {len(weights)} weights: "
            f"{', '.join(frozen[:3])}; unfreeze them, or pass force=True"
        )


def names_of(net: nn.Cell, works: Sequence[Work]) -> list[str]:
    """Return the names of the weights that are changed, in network order."""
    changed = {id(weight) for work in works for weight in work.weights}
    return [str(record.parameter.name) for key, record in see(net).items() if key in changed]


def batches(works: Sequence[Work], most: int) -> Iterator[list[Work]]:
    """Cut and gather the works into lists of at most so many weights in all."""
    batch, room = [], most
    for work in works:
        start, count = 0, len(work.weights)
        while start < count:
            stop = min(start + room, count)
            batch.append(work.at(range(start, stop)))
            room -= stop - start
            start = stop
            if room == 0:
                yield batch
                batch, room = [], most
    if batch:
        yield batch
