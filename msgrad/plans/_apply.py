"""A plan in force on a network: its freezes and its wrappers, which go again without a trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from mindspore import nn

from msgrad.freezing import Claim, Record, Undoable, make_claims
from msgrad.network import core_of, layers_of
from msgrad.plans._resolve import ResolvedRules
from msgrad.plans._rule import CELL_KINDS
from msgrad.wrappers import (
    CellWrapper,
    ReverseGradient,
    ScaleGradient,
    StopGradient,
    take_off,
    wrap_cells,
)

_MARK = "_msgrad_plan"
# The field whose last rule a wrapper is there for.
_DECIDES = {"stop": "stop at", "scale": "scale by", "reverse": "reverse by"}


class Applied(Undoable):
    """A plan that is in force on a network; undo it, or use it as a context.

    Made by `Plan.apply`, never by hand.

    Attributes:
        frozen: The names of the parameters that were frozen, in network order.
        wrapped: The paths of the cells that got wrappers, in network order.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> plan = mg.Plan.from_dict({"plan": [{"freeze": "0"}]})
        >>> with plan.apply(net) as applied:
        ...     applied.frozen
        ['0.weight', '0.bias']
        >>> mg.is_frozen(net, "0")
        False
    """

    def __init__(self, frozen: list[str], wrapped: list[str], undo: Callable[[], None]) -> None:
        super().__init__(undo)
        self.frozen = frozen
        self.wrapped = wrapped

    def __repr__(self) -> str:
        state = ", undone" if self.undone else ""
        return f"Applied({len(self.frozen)} frozen, {len(self.wrapped)} wrapped{state})"


class PlanClaim(Claim):
    """A freeze that a rule of a plan made, and that the same plan does not make twice."""

    def __init__(self, plan: object, text: str, *, statistics: bool, dropout: bool) -> None:
        super().__init__(text, statistics=statistics, dropout=dropout)
        self.plan = plan


def apply_rules(plan: object, resolved: ResolvedRules) -> Applied:
    """Put the rules in force; what this plan did already stays as it is."""
    with ExitStack() as undo:
        wrapped = _wrap(plan, resolved, undo)
        claims = _claims_of(plan, resolved)
        frozen = []
        if claims:
            freeze = make_claims(resolved.net, claims)
            undo.callback(freeze.undo)
            own = {id(record) for _, records in claims for record in records}
            frozen = [str(r.parameter.name) for r in resolved.records if id(r) in own]
        return Applied(frozen, wrapped, undo.pop_all().close)


def _claims_of(plan: object, resolved: ResolvedRules) -> list[tuple[PlanClaim, list[Record]]]:
    """Make one claim for each rule that freezes, and for each behaviour under it."""
    groups: dict[tuple[int, bool, bool], list[Record]] = {}
    for index in sorted(resolved.frozen):
        key = (
            resolved.winner["frozen"][index],
            resolved.value("statistics", index, True),
            resolved.value("dropout", index, True),
        )
        record = resolved.records[index]
        label = resolved.rules[key[0]].label
        if not any(
            isinstance(c, PlanClaim) and c.patterns == label and c.plan == plan
            for c in record.claims
        ):
            groups.setdefault(key, []).append(record)
    return [
        (
            PlanClaim(plan, resolved.rules[rule].label, statistics=statistics, dropout=dropout),
            records,
        )
        for (rule, statistics, dropout), records in groups.items()
    ]


def _wrap(plan: object, resolved: ResolvedRules, undo: ExitStack) -> list[str]:
    """Wrap the cells that the rules take, all at once; what stops stands innermost."""
    wanted: dict[nn.Cell, list[tuple[str, int, int]]] = {}
    for kind in CELL_KINDS:
        for index, rule in resolved.winner.get(_DECIDES[kind], {}).items():
            *layers, core = layers_of(resolved.cells.members[index])
            if not any(layer.__dict__.get(_MARK) == (plan, rule) for layer in layers):
                wanted.setdefault(core, []).append((kind, index, rule))
    if not wanted:
        return []
    made: set[nn.Cell] = set()

    def wrapper(cell: nn.Cell) -> CellWrapper:
        for kind, index, rule in wanted[core_of(cell)]:
            cell = _wrapper(resolved, kind, index, cell)
            cell.__dict__[_MARK] = (plan, rule)
            made.add(cell)
        assert isinstance(cell, CellWrapper)
        return cell

    paths = wrap_cells(resolved.net, wanted, wrapper)
    undo.callback(take_off, resolved.net, made)
    return paths


def _wrapper(resolved: ResolvedRules, kind: str, index: int, cell: nn.Cell) -> CellWrapper:
    if kind == "stop":
        return StopGradient(cell, resolved.value("stop at", index))
    make, at = (ScaleGradient, "output") if kind == "scale" else (ReverseGradient, "input")
    factor = resolved.value(f"{kind} by", index, 1.0)
    return make(cell, factor, resolved.value(f"{kind} at", index, at))
