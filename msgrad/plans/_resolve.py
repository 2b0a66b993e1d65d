"""What the rules of a plan say of every parameter and every cell of one network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from mindspore import Parameter, nn

from msgrad._text import few
from msgrad.errors import ArgumentError, NoMatchError
from msgrad.freezing import Record, records_of
from msgrad.network import (
    CellMatcher,
    Names,
    NetPattern,
    ParameterMatcher,
    inner_network,
    last_wins,
    show,
)
from msgrad.plans._document import KeyPath
from msgrad.plans._rule import PlanRule, written
from msgrad.plans._stage import REST, PlanStage, stage_ends
from msgrad.training import Stage

Note = tuple[KeyPath, str]


class ResolvedRules:
    """Of each field the last rule that takes a thing decides.

    Things are numbered: parameters in network order, cells in the order of their first place.

    Args:
        rules: The rules, in order.
        net: The network.

    Attributes:
        taken: What each rule takes: parameters that are trainable by design, or cells.
        last: For each field and thing the number of the rule that decides.
        problems: Rules that take nothing, or nothing away.
        conflicts: Rules that disagree over one thing that has several paths.
    """

    def __init__(self, rules: Sequence[PlanRule], net: nn.Cell) -> None:
        self.rules = rules
        self.net = net
        self.parameters = ParameterMatcher(net)
        records = records_of(net)
        self.records: list[Record] = [records[id(p)] for p in self.parameters.members]
        self.design = {n for n, record in enumerate(self.records) if record.design}
        self.problems: list[Note] = []
        self.matched: list[set[int]] = []
        self.winner: dict[str, dict[int, int]] = {}
        for number, rule in enumerate(rules):
            self.matched.append(self._cells_of(rule) if rule.of_cells else self._weights_of(rule))
            self._decide(number)
        self.conflicts = list(self._conflicts())

    @cached_property
    def cells(self) -> CellMatcher:
        """The cells of the network."""
        return CellMatcher(self.net)

    @property
    def frozen(self) -> set[int]:
        """The parameters that the rules keep."""
        return {n for n, rule in self.winner.get("frozen", {}).items() if self.says(rule, "frozen")}

    def says(self, rule: int, field: str) -> Any:
        """Return what a rule says of a field."""
        return self.rules[rule].says()[field]

    def value(self, field: str, index: int, default: Any = None) -> Any:
        """Return what was decided of a field, or the default."""
        rule = self.winner.get(field, {}).get(index)
        return default if rule is None else self.says(rule, field)

    def decides(self, rule: int, index: int) -> dict[str, Any]:
        """Return the fields that a rule decides of a thing."""
        said = self.rules[rule].says()
        return {f: value for f, value in said.items() if self.winner[f].get(index) == rule}

    def paths(self, rule: PlanRule, index: int) -> list[str]:
        """Return every path of what a rule takes, a parameter or a cell."""
        if rule.of_cells:
            return self.cells.paths[index]
        return self.parameters.paths[index]

    def names(self, indices: set[int]) -> list[str]:
        """Name parameters, in network order."""
        return [str(self.parameters.members[index].name) for index in sorted(indices)]

    def choose(self, path: KeyPath, owner: str, patterns: Sequence[Any]) -> set[int]:
        """Return the parameters that patterns choose; what is wrong with them is noted."""
        return self._chosen(self.parameters, path, owner, patterns)

    def matches_of(self, rule: PlanRule) -> set[int]:
        """Return the parameters, or cells, that the patterns of a rule choose."""
        matcher = self.cells if rule.of_cells else self.parameters
        return self._chosen(matcher, (*rule.path, rule.kind), rule.name, rule.patterns)

    def _weights_of(self, rule: PlanRule) -> set[int]:
        path = (*rule.path, rule.kind)
        before = len(self.problems)
        found = self.choose(path, rule.name, rule.patterns)
        # a freeze holds behaviour too, of what is turned off by its flag
        matched = self._weights_in(found) if rule.kind == "freeze" else found & self.design
        if not matched and len(self.problems) == before:
            self.problems.append((path, self._no_weight(rule, found)))
        # a freeze rule with a misspelt name would be the reason
        if rule.kind == "unfreeze" and not self.problems and not matched & self.frozen:
            message = (
                f"{title(rule)} takes nothing away: no freeze rule before it keeps any of these; "
                "put it behind one, or drop it"
            )
            self.problems.append((path, message))
        return matched

    def _weights_in(self, found: set[int]) -> set[int]:
        return {index for index in found if self.records[index].can_train}

    def _no_weight(self, rule: PlanRule, found: set[int]) -> str:
        off = self._weights_in(found)
        names = few(self.names(off or found), 3) or "nothing"
        if off:
            return (
                f"{title(rule)} takes {names}, with requires_grad False before msgrad saw it; drop "
                "the rule, or mg.unfreeze(…, force=True) first"
            )
        return f"{title(rule)} takes {names}, which the model made untrainable; name a weight"

    def _cells_of(self, rule: PlanRule) -> set[int]:
        chosen = self._chosen(self.cells, (*rule.path, rule.kind), rule.name, rule.patterns)
        return self.cells.outermost(chosen)

    def _chosen(
        self,
        matcher: ParameterMatcher | CellMatcher,
        path: KeyPath,
        owner: str,
        patterns: Sequence[Any],
    ) -> set[int]:
        matches, missing = [], False
        for number, pattern in enumerate(patterns):
            try:
                matches += matcher.matches([pattern], missing_ok=False)
            except (NoMatchError, ArgumentError) as error:
                self.problems.append(((*path, number), f"{owner}: {error}"))
                missing = True
        try:
            if isinstance(matcher, CellMatcher) and not missing:
                matcher.check_outside(matches)
            return last_wins(matches, matcher.names.count, missing_ok=missing) if matches else set()
        except NoMatchError as error:
            self.problems.append((path, f"{owner}: {error}"))
            return set()

    def _decide(self, number: int) -> None:
        for field in self.rules[number].says():
            self.winner.setdefault(field, {}).update(dict.fromkeys(self.matched[number], number))

    def _conflicts(self) -> Iterator[Note]:
        """Find pairs of rules that reach one thing by different paths and say different things."""
        sides: list[tuple[Any, list[list[str]], bool]] = [
            (self.parameters, self.parameters.paths, False)
        ]
        if any(rule.of_cells for rule in self.rules):
            sides.append((self.cells, self.cells.paths, True))
        for matcher, paths, of_cells in sides:
            shared = {index for index, where in enumerate(paths) if len(where) > 1}
            if not shared:
                continue
            own = [n for n, rule in enumerate(self.rules) if rule.of_cells == of_cells]
            for one, other in combinations(own, 2):
                for field in self._disagreements(one, other):
                    both = sorted(self.matched[one] & self.matched[other] & shared)
                    yield from self._apart(matcher, paths, both, (one, other), field)

    def _disagreements(self, one: int, other: int) -> list[str]:
        first, second = self.rules[one].says(), self.rules[other].says()
        return [field for field in first if field in second and first[field] != second[field]]

    def _apart(
        self,
        matcher: ParameterMatcher | CellMatcher,
        paths: list[list[str]],
        indices: list[int],
        pair: tuple[int, int],
        field: str,
    ) -> Iterator[Note]:
        one, other = (self.rules[number] for number in pair)
        for index in indices:
            ways = [_ways(matcher, rule, paths[index]) for rule in (one, other)]
            if not set(ways[0]) & set(ways[1]):
                said = [words(field, rule.says()[field]) for rule in (one, other)]
                yield (
                    (*other.path, other.kind),
                    f"{one.name} reaches {ways[0][0]!r} and says {said[0]}, {other.name} reaches "
                    f"the same {_noun(matcher)} as {ways[1][0]!r} and says {said[1]}; make them "
                    "agree, or drop one",
                )
                return


def _ways(matcher: ParameterMatcher | CellMatcher, rule: PlanRule, paths: list[str]) -> list[str]:
    """Return those of the paths to one thing by which a rule reaches it."""
    texts = [pattern for pattern in rule.patterns if isinstance(pattern, str)]
    if len(texts) < len(rule.patterns) or texts[0].startswith("!"):
        return paths
    index = Names([path] for path in paths)
    found: set[int] = set()
    for text in texts:
        pattern: Any = matcher.parse(text)
        if not pattern.negated:
            found |= index.found(pattern, whole=isinstance(matcher, CellMatcher))
    # by a name that is no path, it is the thing itself that is meant
    return [paths[n] for n in sorted(found)] or paths


def _noun(matcher: ParameterMatcher | CellMatcher) -> str:
    return "cell" if isinstance(matcher, CellMatcher) else "weight"


def words(field: str, value: Any) -> str:
    """Write a field and its value."""
    if field == "frozen":
        return "freeze" if value else "unfreeze"
    if field.startswith("update "):
        return f"{field} {show(value['fn'])}"
    if field == "hold rows":
        return "hold" if value is None else f"hold rows {list(value)}"
    return f"{field} {value}"


def title(rule: PlanRule) -> str:
    """Name a rule in a message, with its kind and its patterns."""
    return f"{rule.name} ({rule.kind} {shown(rule.patterns)})"


def shown(patterns: Sequence[Any]) -> str:
    """Write the first patterns, and how many more there are."""
    return few([show(pattern) for pattern in patterns], 3)


class ResolvedStages:
    """The parameters that each stage trains, and what is wrong with the stages.

    Args:
        resolved: What the rules say.
        stages: The stages, in order.

    Attributes:
        named: The parameters that each stage names or, where it trains the rest, takes.
        trained: The parameters that move in each stage; one entry for a plan without stages.
        problems: Stages that train or freeze nothing, or train what a rule keeps.
        sound: Whether there is no problem with any stage, so that what they train can be believed.
    """

    def __init__(self, resolved: ResolvedRules, stages: Sequence[PlanStage]) -> None:
        self.resolved = resolved
        self.stages = stages
        self.named: list[set[int]] = []
        self.trained: list[set[int]] = []
        self.problems: list[Note] = []
        known = len(resolved.problems)
        for stage in stages:
            before = len(resolved.problems) + len(self.problems)
            named = self._named(stage)
            self.named.append(named)
            self.trained.append(self._trained(stage, named))
            if len(resolved.problems) + len(self.problems) == before:
                self._check(stage)
        self.sound = not self.problems and len(resolved.problems) == known
        if not stages:
            self.trained.append(resolved.design - resolved.frozen)

    def _named(self, stage: PlanStage) -> set[int]:
        resolved = self.resolved
        if stage.rest:
            before = set().union(*self.trained) if not stage.cumulative else set()
            return resolved.design - resolved.frozen - before
        key = "train" if stage.train else "freeze"
        path = (*stage.path, key)
        patterns = stage.train or stage.freeze
        meant = [p for p in patterns if _means_rest(p) and p not in resolved.parameters.names]
        if meant:
            self._note(path, f"{stage.name} names {meant[0]!r}, which is no weight; write {REST!r}")
            return set()
        return resolved.choose(path, stage.name, patterns) & resolved.design

    def _trained(self, stage: PlanStage, named: set[int]) -> set[int]:
        if stage.freeze:
            return self.resolved.design - self.resolved.frozen - named
        return named.union(*self.trained) if stage.cumulative else named

    def _check(self, stage: PlanStage) -> None:
        named, trained, frozen = self.named[-1], self.trained[-1], self.resolved.frozen
        key = "train" if stage.train else "freeze"
        path = (*stage.path, key)
        what = shown(stage.train or stage.freeze)
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
                f"{stage.name} trains {few(self.resolved.names(both), 3)}, which "
                f"{self._keepers(both)}; unfreeze them behind that, or name them in no stage",
            )

    def _keepers(self, indices: set[int]) -> str:
        winner = self.resolved.winner["frozen"]
        numbers = sorted({winner[index] for index in indices})
        names = [self.resolved.rules[number].name for number in numbers]
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
        resolved = ResolvedRules(rules, inner_network(net))
        times = ResolvedStages(resolved, self.stages)
        chosen = times.named[-1] if stage.freeze else times.trained[-1]
        return [resolved.parameters.members[index] for index in sorted(chosen)]

    def __repr__(self) -> str:
        stage = self.stages[-1]
        more = " and what trained before" if stage.cumulative else ""
        patterns = stage.train or stage.freeze
        own = show(patterns[0]) if len(patterns) == 1 else f"[{', '.join(map(show, patterns))}]"
        return ("the rest" if stage.rest else own) + more


def stages_of(
    rules: tuple[PlanRule, ...],
    stages: tuple[PlanStage, ...],
    *,
    plain: bool,
    epochs: int | None = None,
) -> list[Stage]:
    """Return the stages for a `Schedule`; `plain` keeps patterns that stand for themselves.

    With `epochs`, those that a metric ends have their greatest length.
    """
    found = []
    ends = stage_ends(stages, epochs) if epochs is not None else []
    for number, stage in enumerate(stages, 1):
        length = stage.epochs
        if ends and stage.until is not None and length is None and number < len(stages):
            length = ends[number - 1] - (ends[number - 2] if number > 1 else 0)
        pattern: Any = StagePattern(rules, stages[:number])
        if plain and not stage.rest and not stage.cumulative:
            pattern = written(stage.train or stage.freeze)
        found.append(
            Stage(
                **{"train" if stage.train else "freeze": pattern},
                epochs=length,
                steps=stage.steps,
                statistics=stage.statistics is not False,
                dropout=stage.dropout is not False,
                lr=stage.lr,
                optimizer=stage.optimizer,
            )
        )
    return found
