"""Contradictions of a plan: rules and stages that cannot all be meant, found in one network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mindspore import nn

from msgrad._text import few
from msgrad.errors import ArgumentError
from msgrad.network import core_of
from msgrad.plans._resolve import Note, ResolvedRules, ResolvedStages, shown, title
from msgrad.plans._rule import PlanRule
from msgrad.plans._user_code import Functions
from msgrad.updates import check_callable, check_readable
from msgrad.wrappers import check_wrappable


def contradictions(
    resolved: ResolvedRules, times: ResolvedStages, functions: Functions
) -> Iterator[Note]:
    """Find what cannot be meant; rules that take nothing are left to others."""
    yield from _unwrappable(resolved)
    for check in (_overruled, _cut_twice, _of_frozen, _of_held, _bad_rows):
        for number, rule in enumerate(resolved.rules):
            if resolved.matched[number]:
                yield from check(resolved, times, number, rule)
    yield from _bad_functions(resolved, functions)
    yield from _nothing_left(resolved, times)
    yield from _all_held(resolved, times)


def _unwrappable(resolved: ResolvedRules) -> Iterator[Note]:
    """Find cells that no wrapper can stand around; which rule it is, only where there is one."""
    rules = [n for n, rule in enumerate(resolved.rules) if rule.of_cells and resolved.matched[n]]
    matched = {number: resolved.matched[number] for number in rules}
    if not matched:
        return
    try:
        check_wrappable(resolved.net, _cores(resolved, set().union(*matched.values())))
    except ArgumentError:
        for number, indices in matched.items():
            rule = resolved.rules[number]
            try:
                check_wrappable(resolved.net, _cores(resolved, indices))
            except ArgumentError as error:
                yield (*rule.path, rule.kind), f"{rule.name}: {error}"


def _cores(resolved: ResolvedRules, indices: set[int]) -> set[nn.Cell]:
    return {core_of(resolved.cells.members[index]) for index in indices}


def _overruled(
    resolved: ResolvedRules, times: ResolvedStages, number: int, rule: PlanRule
) -> Iterator[Note]:
    """Find a rule of which later ones override every field of everything that it takes."""
    later: set[int] = set()
    for index in resolved.matched[number]:
        if len(resolved.paths(rule, index)) > 1:
            return  # by another path of a shared one, which is a conflict or a choice
        for field in rule.says():
            winner = resolved.winner[field][index]
            if winner == number:
                return
            later.add(winner)
    names = " and ".join(resolved.rules[other].name for other in sorted(later))
    yield (
        (*rule.path, rule.kind),
        f"{title(rule)} decides nothing: {names} behind it "
        "overrides all of it; drop one, or put it behind",
    )


def _cut_twice(
    resolved: ResolvedRules, times: ResolvedStages, number: int, rule: PlanRule
) -> Iterator[Note]:
    """Find a factor for a gradient that a stop makes 0 anyway."""
    if rule.kind not in ("scale", "reverse"):
        return
    default = "output" if rule.kind == "scale" else "input"
    stops = [other for other in resolved.winner.get("stop at", {}).values()]
    if not stops:
        return
    cut = _stopped(resolved)
    found = [
        cut(path, resolved.value(f"{rule.kind} at", index, default))
        for index in resolved.matched[number]
        for path in resolved.cells.paths[index]
    ]
    if all(other is not None for other in found):
        names = " and ".join(
            sorted({resolved.rules[other].name for other in found if other is not None})
        )
        yield (
            (*rule.path, rule.kind),
            f"{title(rule)} multiplies a gradient that {names} stops; drop one of them",
        )


def _stopped(resolved: ResolvedRules) -> Callable[[str, str], int | None]:
    """Return a function that says which stop makes the gradient at one side of a cell 0."""
    stops = {
        path: (rule, resolved.says(rule, "stop at"))
        for index, rule in resolved.winner["stop at"].items()
        for path in resolved.cells.paths[index]
    }

    def cut(path: str, side: str) -> int | None:
        if path in stops and (stops[path][1] == "output" or side == "input"):
            return stops[path][0]
        while "." in path:
            path = path.rpartition(".")[0]
            if path in stops and stops[path][1] == "output":
                return stops[path][0]
        return None

    return cut


def _of_frozen(
    resolved: ResolvedRules, times: ResolvedStages, number: int, rule: PlanRule
) -> Iterator[Note]:
    """Find a rule for weights that never move."""
    path, what = (*rule.path, rule.kind), title(rule)
    matched = resolved.matched[number]
    moving = set().union(*times.trained) if times.sound else resolved.design - resolved.frozen
    if rule.kind in ("group", "hold") and not matched & moving:
        keepers = _keepers(resolved, times, matched)
        yield path, f"{what} takes only weights that {keepers} throughout; drop one of them"
    if rule.kind != "update" or rule.fields.get("force"):
        return
    own = {
        index for index in matched if resolved.winner[f"update {rule.when}"].get(index) == number
    }
    held = own & resolved.frozen
    if held:
        keepers = _keepers(resolved, times, held)
        yield (
            path,
            f"{what} changes weights that {keepers}; drop one of them, or add force: true",
        )
        return
    for stage, trained in zip(times.stages, times.trained, strict=False) if times.sound else ():
        if own - trained:
            yield (
                path,
                f"{what} changes {few(resolved.names(own - trained), 3)}, which {stage.name} "
                "keeps; train them there too, or add force: true",
            )
            return


def _of_held(
    resolved: ResolvedRules, times: ResolvedStages, number: int, rule: PlanRule
) -> Iterator[Note]:
    """Find an update of weights that a rule holds against the optimizer alone."""
    if rule.kind != "update" or rule.fields.get("force"):
        return
    winner = resolved.winner.get("hold rows", {})
    own = [
        t
        for t in resolved.matched[number]
        if resolved.winner[f"update {rule.when}"].get(t) == number
    ]
    holders = sorted({winner[index] for index in own if index in winner})
    if holders:
        names = " and ".join(resolved.rules[other].name for other in holders)
        yield (
            (*rule.path, rule.kind),
            f"{title(rule)} changes weights that {names} "
            f"{'holds' if len(holders) == 1 else 'hold'}; drop one of them, or add force: true",
        )


def _keepers(resolved: ResolvedRules, times: ResolvedStages, indices: set[int]) -> str:
    winner = resolved.winner.get("frozen", {})
    rules = sorted({winner[index] for index in indices & resolved.frozen})
    names = [resolved.rules[number].name for number in rules]
    names += ["every stage"] if indices - resolved.frozen else []
    return f"{' and '.join(names)} {'keeps' if len(names) == 1 else 'keep'}"


def _bad_rows(
    resolved: ResolvedRules, times: ResolvedStages, number: int, rule: PlanRule
) -> Iterator[Note]:
    """Find rows that a weight does not have."""
    rows = rule.fields.get("rows")
    if rule.kind != "hold" or rows is None:
        return
    for index in sorted(resolved.matched[number]):
        parameter = resolved.parameters.members[index]
        count = parameter.shape[0] if parameter.shape else 0
        wrong = [row for row in rows if not -count <= row < count]
        if wrong:
            yield (
                (*rule.path, "rows"),
                f"rows {list(rows)} of {rule.name}: {parameter.name!r} has {count} rows and no row "
                f"{wrong[0]}; "
                + (f"give 0 to {count - 1}" if count else "hold it whole, without rows"),
            )
            return


def _bad_functions(resolved: ResolvedRules, functions: Functions) -> Iterator[Note]:
    """Find functions that are not there, do not take their arguments, or no graph can read."""
    for rule in resolved.rules:
        if rule.kind == "update":
            try:
                function = functions.of(rule.fields["fn"], rule.fields.get("args"))
                check_callable(shown(rule.patterns), function)
                check_readable(shown(rule.patterns), function)
            except ArgumentError as error:
                yield (*rule.path, "fn"), f"{rule.name}: {error}"


def _nothing_left(resolved: ResolvedRules, times: ResolvedStages) -> Iterator[Note]:
    """Find a plan that keeps everything."""
    if not times.stages and resolved.frozen and not times.trained[0]:
        numbers = sorted(set(resolved.winner["frozen"].values()))
        names = " and ".join(resolved.rules[number].name for number in numbers)
        rule = resolved.rules[numbers[-1]]
        yield (
            (*rule.path, rule.kind),
            f"{names} {'keeps' if len(numbers) == 1 else 'keep'} all {len(resolved.design)} "
            "weights, nothing is left to train; freeze less, or unfreeze some behind it",
        )


def _all_held(resolved: ResolvedRules, times: ResolvedStages) -> Iterator[Note]:
    """Find a stage, or a plan without any, of which every weight is held."""
    winner = resolved.winner.get("hold rows", {})
    held = {index for index, rule in winner.items() if resolved.says(rule, "hold rows") is None}
    for number, trained in enumerate(times.trained if times.sound else []):
        if trained and trained <= held:
            rule = resolved.rules[max(winner[index] for index in trained)]
            what = f"{times.stages[number].name} trains" if times.stages else "trains"
            yield (
                (*rule.path, rule.kind),
                f"{title(rule)} holds all that {what}, and nothing moves; hold less",
            )
            return
