"""A plan in force on a network: its freezes and its wrappers, which go again without a trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from mindspore import nn

from msgrad._claims import Claim, Record
from msgrad._freeze import make_claims
from msgrad._paths import layers_of
from msgrad._plan_fates import Fates
from msgrad._plan_rule import CELL_KINDS
from msgrad._scale import ReverseGradient, ScaleGradient
from msgrad._stop import StopGradient
from msgrad._undo import Undoable
from msgrad._wrap import take_off, wrap_cells
from msgrad._wrapper import CellWrapper

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


def apply_rules(plan: object, fates: Fates) -> Applied:
    """Put the rules in force; what this plan did already stays as it is."""
    with ExitStack() as undo:
        wrapped = _wrap(plan, fates, undo)
        claims = _claims_of(plan, fates)
        frozen = []
        if claims:
            freeze = make_claims(fates.net, claims)
            undo.callback(freeze.undo)
            own = {id(record) for _, records in claims for record in records}
            frozen = [str(r.parameter.name) for r in fates.records if id(r) in own]
        return Applied(frozen, wrapped, undo.pop_all().close)


def _claims_of(plan: object, fates: Fates) -> list[tuple[PlanClaim, list[Record]]]:
    """Make one claim for each rule that freezes, and for each behaviour under it."""
    groups: dict[tuple[int, bool, bool], list[Record]] = {}
    for thing in sorted(fates.frozen):
        key = (
            fates.last["frozen"][thing],
            fates.value("statistics", thing, True),
            fates.value("dropout", thing, True),
        )
        record = fates.records[thing]
        label = fates.rules[key[0]].label
        if not any(
            isinstance(c, PlanClaim) and c.patterns == label and c.plan == plan
            for c in record.claims
        ):
            groups.setdefault(key, []).append(record)
    return [
        (
            PlanClaim(plan, fates.rules[rule].label, statistics=statistics, dropout=dropout),
            records,
        )
        for (rule, statistics, dropout), records in groups.items()
    ]


def _wrap(plan: object, fates: Fates, undo: ExitStack) -> list[str]:
    """Wrap the cells that the rules take, all at once; what stops stands innermost."""
    wanted: dict[nn.Cell, list[tuple[str, int, int]]] = {}
    for kind in CELL_KINDS:
        for thing, rule in fates.last.get(_DECIDES[kind], {}).items():
            *layers, core = layers_of(fates.cells.things[thing])
            if not any(layer.__dict__.get(_MARK) == (plan, rule) for layer in layers):
                wanted.setdefault(core, []).append((kind, thing, rule))
    if not wanted:
        return []
    made: set[nn.Cell] = set()

    def wrapper(cell: nn.Cell) -> CellWrapper:
        for kind, thing, rule in wanted[layers_of(cell)[-1]]:
            cell = _wrapper(fates, kind, thing, cell)
            cell.__dict__[_MARK] = (plan, rule)
            made.add(cell)
        assert isinstance(cell, CellWrapper)
        return cell

    paths = wrap_cells(fates.net, wanted, wrapper)
    undo.callback(take_off, fates.net, made)
    return paths


def _wrapper(fates: Fates, kind: str, thing: int, cell: nn.Cell) -> CellWrapper:
    if kind == "stop":
        return StopGradient(cell, fates.value("stop at", thing))
    make, at = (ScaleGradient, "output") if kind == "scale" else (ReverseGradient, "input")
    factor = fates.value(f"{kind} by", thing, 1.0)
    return make(cell, factor, fates.value(f"{kind} at", thing, at))
