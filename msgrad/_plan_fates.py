"""What the rules of a plan say of every parameter and every cell of one network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

from mindspore import nn

from msgrad._claims import Record, see
from msgrad._document import KeyPath
from msgrad._errors import ArgumentError, NoMatchError
from msgrad._matcher import CellMatcher, ParameterMatcher, show
from msgrad._names import Names, last_wins
from msgrad._plan_rule import PlanRule

Note = tuple[KeyPath, str]


class Fates:
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
        records = see(net)
        self.records: list[Record] = [records[id(p)] for p in self.parameters.things]
        self.design = {n for n, record in enumerate(self.records) if record.design}
        self.problems: list[Note] = []
        self.taken: list[set[int]] = []
        self.last: dict[str, dict[int, int]] = {}
        for number, rule in enumerate(rules):
            self.taken.append(self._cells_of(rule) if rule.of_cells else self._weights_of(rule))
            self._decide(number)
        self.conflicts = list(self._conflicts())

    @cached_property
    def cells(self) -> CellMatcher:
        """The cells of the network."""
        return CellMatcher(self.net)

    @property
    def frozen(self) -> set[int]:
        """The parameters that the rules keep."""
        return {n for n, rule in self.last.get("frozen", {}).items() if self.says(rule, "frozen")}

    def says(self, rule: int, field: str) -> Any:
        """Return what a rule says of a field."""
        return self.rules[rule].says()[field]

    def value(self, field: str, thing: int, default: Any = None) -> Any:
        """Return what was decided of a field, or the default."""
        rule = self.last.get(field, {}).get(thing)
        return default if rule is None else self.says(rule, field)

    def decides(self, rule: int, thing: int) -> dict[str, Any]:
        """Return the fields that a rule decides of a thing."""
        said = self.rules[rule].says()
        return {f: value for f, value in said.items() if self.last[f].get(thing) == rule}

    def paths(self, rule: PlanRule, thing: int) -> list[str]:
        """Return every path of what a rule takes, a parameter or a cell."""
        if rule.of_cells:
            return self.cells.paths[thing]
        return self.parameters.paths[thing]

    def names(self, things: set[int]) -> list[str]:
        """Name parameters, in network order."""
        return [str(self.parameters.things[thing].name) for thing in sorted(things)]

    def choose(self, path: KeyPath, owner: str, patterns: Sequence[Any]) -> set[int]:
        """Return the parameters that patterns choose; what is wrong with them is noted."""
        return self._chosen(self.parameters, path, owner, patterns)

    def _weights_of(self, rule: PlanRule) -> set[int]:
        path = (*rule.path, rule.kind)
        before = len(self.problems)
        found = self.choose(path, rule.name, rule.patterns)
        taken = found & self.design
        if not taken and len(self.problems) == before:
            self.problems.append((path, self._no_weight(rule, found)))
        # a freeze rule with a misspelt name would be the reason
        if rule.kind == "unfreeze" and not self.problems and not taken & self.frozen:
            message = (
                f"{title(rule)} takes nothing away: no freeze rule before it keeps any of these; "
                "put it behind one, or drop it"
            )
            self.problems.append((path, message))
        return taken

    def _no_weight(self, rule: PlanRule, found: set[int]) -> str:
        off = {thing for thing in found if self.records[thing].can_train}
        names = few(self.names(off or found), str) or "nothing"
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
            self.last.setdefault(field, {}).update(dict.fromkeys(self.taken[number], number))

    def _conflicts(self) -> Iterator[Note]:
        """Find pairs of rules that reach one thing by different paths and say different things."""
        sides: list[tuple[Any, list[list[str]], bool]] = [
            (self.parameters, self.parameters.paths, False)
        ]
        if any(rule.of_cells for rule in self.rules):
            sides.append((self.cells, self.cells.paths, True))
        for matcher, paths, of_cells in sides:
            shared = {thing for thing, where in enumerate(paths) if len(where) > 1}
            if not shared:
                continue
            own = [n for n, rule in enumerate(self.rules) if rule.of_cells == of_cells]
            for one, other in combinations(own, 2):
                for field in self._disagreements(one, other):
                    both = sorted(self.taken[one] & self.taken[other] & shared)
                    yield from self._apart(matcher, paths, both, (one, other), field)

    def _disagreements(self, one: int, other: int) -> list[str]:
        first, second = self.rules[one].says(), self.rules[other].says()
        return [field for field in first if field in second and first[field] != second[field]]

    def _apart(
        self,
        matcher: ParameterMatcher | CellMatcher,
        paths: list[list[str]],
        things: list[int],
        pair: tuple[int, int],
        field: str,
    ) -> Iterator[Note]:
        one, other = (self.rules[number] for number in pair)
        for thing in things:
            ways = [_ways(matcher, rule, paths[thing]) for rule in (one, other)]
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
    return f"{rule.name} ({rule.kind} {few(rule.patterns)})"


def few(patterns: Sequence[Any], write: Callable[[Any], str] = show) -> str:
    """Write the first patterns or names, and how many more there are."""
    more = f" and {len(patterns) - 3} more" if len(patterns) > 3 else ""
    return ", ".join(map(write, patterns[:3])) + more
