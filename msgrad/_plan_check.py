"""Contradictions of a plan: rules and stages that cannot all be meant, found in one network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mindspore import nn

from msgrad._errors import ArgumentError
from msgrad._function import Functions
from msgrad._paths import layers_of
from msgrad._plan_fates import Fates, Note, few, title
from msgrad._plan_rule import PlanRule
from msgrad._plan_times import Times
from msgrad._rules import check_callable, check_readable
from msgrad._wrappable import check_wrappable


def contradictions(fates: Fates, times: Times, functions: Functions) -> Iterator[Note]:
    """Find what cannot be meant; rules that take nothing are left to others."""
    yield from _unwrappable(fates)
    for check in (_overruled, _cut_twice, _of_frozen, _of_held, _bad_rows):
        for number, rule in enumerate(fates.rules):
            if fates.taken[number]:
                yield from check(fates, times, number, rule)
    yield from _bad_functions(fates, functions)
    yield from _nothing_left(fates, times)
    yield from _all_held(fates, times)


def _unwrappable(fates: Fates) -> Iterator[Note]:
    """Find cells that no wrapper can stand around; which rule it is, only where there is one."""
    rules = [n for n, rule in enumerate(fates.rules) if rule.of_cells and fates.taken[n]]
    taken = {number: fates.taken[number] for number in rules}
    if not taken:
        return
    try:
        check_wrappable(fates.net, _cores(fates, set().union(*taken.values())))
    except ArgumentError:
        for number, things in taken.items():
            rule = fates.rules[number]
            try:
                check_wrappable(fates.net, _cores(fates, things))
            except ArgumentError as error:
                yield (*rule.path, rule.kind), f"{rule.name}: {error}"


def _cores(fates: Fates, things: set[int]) -> set[nn.Cell]:
    return {layers_of(fates.cells.things[thing])[-1] for thing in things}


def _overruled(fates: Fates, times: Times, number: int, rule: PlanRule) -> Iterator[Note]:
    """Find a rule of which later ones override every field of everything that it takes."""
    later: set[int] = set()
    for thing in fates.taken[number]:
        if len(fates.paths(rule, thing)) > 1:
            return  # by another path of a shared one, which is a conflict or a choice
        for field in rule.says():
            last = fates.last[field][thing]
            if last == number:
                return
            later.add(last)
    names = " and ".join(fates.rules[other].name for other in sorted(later))
    yield (
        (*rule.path, rule.kind),
        f"{title(rule)} decides nothing: {names} behind it "
        "overrides all of it; drop one, or put it behind",
    )


def _cut_twice(fates: Fates, times: Times, number: int, rule: PlanRule) -> Iterator[Note]:
    """Find a factor for a gradient that a stop makes 0 anyway."""
    if rule.kind not in ("scale", "reverse"):
        return
    default = "output" if rule.kind == "scale" else "input"
    stops = [other for other in fates.last.get("stop at", {}).values()]
    if not stops:
        return
    cut = _stopped(fates)
    found = [
        cut(path, fates.value(f"{rule.kind} at", thing, default))
        for thing in fates.taken[number]
        for path in fates.cells.paths[thing]
    ]
    if all(other is not None for other in found):
        names = " and ".join(
            sorted({fates.rules[other].name for other in found if other is not None})
        )
        yield (
            (*rule.path, rule.kind),
            f"{title(rule)} multiplies a gradient that {names} stops; drop one of them",
        )


def _stopped(fates: Fates) -> Callable[[str, str], int | None]:
    """Return a function that says which stop makes the gradient at one side of a cell 0."""
    stops = {
        path: (rule, fates.says(rule, "stop at"))
        for thing, rule in fates.last["stop at"].items()
        for path in fates.cells.paths[thing]
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


def _of_frozen(fates: Fates, times: Times, number: int, rule: PlanRule) -> Iterator[Note]:
    """Find a rule for weights that never move."""
    path, what = (*rule.path, rule.kind), title(rule)
    taken = fates.taken[number]
    moving = set().union(*times.trained) if times.sound else fates.design - fates.frozen
    if rule.kind in ("group", "hold") and not taken & moving:
        keepers = _keepers(fates, times, taken)
        yield path, f"{what} takes only weights that {keepers} throughout; drop one of them"
    if rule.kind != "update" or rule.fields.get("force"):
        return
    own = {thing for thing in taken if fates.last[f"update {rule.when}"].get(thing) == number}
    held = own & fates.frozen
    if held:
        keepers = _keepers(fates, times, held)
        yield (
            path,
            f"{what} changes weights that {keepers}; drop one of them, or add force: true",
        )
        return
    for stage, trained in zip(times.stages, times.trained, strict=False) if times.sound else ():
        if own - trained:
            yield (
                path,
                f"{what} changes {few(fates.names(own - trained), str)}, which {stage.name} keeps; "
                "train them there too, or add force: true",
            )
            return


def _of_held(fates: Fates, times: Times, number: int, rule: PlanRule) -> Iterator[Note]:
    """Find an update of weights that a rule holds against the optimizer alone."""
    if rule.kind != "update" or rule.fields.get("force"):
        return
    last = fates.last.get("hold rows", {})
    own = [t for t in fates.taken[number] if fates.last[f"update {rule.when}"].get(t) == number]
    holders = sorted({last[thing] for thing in own if thing in last})
    if holders:
        names = " and ".join(fates.rules[other].name for other in holders)
        yield (
            (*rule.path, rule.kind),
            f"{title(rule)} changes weights that {names} "
            f"{'holds' if len(holders) == 1 else 'hold'}; drop one of them, or add force: true",
        )


def _keepers(fates: Fates, times: Times, things: set[int]) -> str:
    last = fates.last.get("frozen", {})
    rules = sorted({last[thing] for thing in things & fates.frozen})
    names = [fates.rules[number].name for number in rules]
    names += ["every stage"] if things - fates.frozen else []
    return f"{' and '.join(names)} {'keeps' if len(names) == 1 else 'keep'}"


def _bad_rows(fates: Fates, times: Times, number: int, rule: PlanRule) -> Iterator[Note]:
    """Find rows that a weight does not have."""
    rows = rule.fields.get("rows")
    if rule.kind != "hold" or rows is None:
        return
    for thing in sorted(fates.taken[number]):
        parameter = fates.parameters.things[thing]
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


def _bad_functions(fates: Fates, functions: Functions) -> Iterator[Note]:
    """Find functions that are not there, do not take their arguments, or no graph can read."""
    for rule in fates.rules:
        if rule.kind == "update":
            try:
                function = functions.of(rule.fields["fn"], rule.fields.get("args"))
                check_callable(few(rule.patterns), function)
                check_readable(few(rule.patterns), function)
            except ArgumentError as error:
                yield (*rule.path, "fn"), f"{rule.name}: {error}"


def _nothing_left(fates: Fates, times: Times) -> Iterator[Note]:
    """Find a plan that keeps everything."""
    if not times.stages and fates.frozen and not times.trained[0]:
        numbers = sorted(set(fates.last["frozen"].values()))
        names = " and ".join(fates.rules[number].name for number in numbers)
        rule = fates.rules[numbers[-1]]
        yield (
            (*rule.path, rule.kind),
            f"{names} {'keeps' if len(numbers) == 1 else 'keep'} all {len(fates.design)} weights, "
            "nothing is left to train; freeze less, or unfreeze some behind it",
        )


def _all_held(fates: Fates, times: Times) -> Iterator[Note]:
    """Find a stage, or a plan without any, of which every weight is held."""
    last = fates.last.get("hold rows", {})
    held = {thing for thing, rule in last.items() if fates.says(rule, "hold rows") is None}
    for number, trained in enumerate(times.trained if times.sound else []):
        if trained and trained <= held:
            rule = fates.rules[max(last[thing] for thing in trained)]
            what = f"{times.stages[number].name} trains" if times.stages else "trains"
            yield (
                (*rule.path, rule.kind),
                f"{title(rule)} holds all that {what}, and nothing moves; hold less",
            )
            return
