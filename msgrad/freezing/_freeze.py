"""Freezing by name: claims that hold weights and, for wholly frozen cells, their behaviour."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, TypeVar

from mindspore import nn

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import _claims
from msgrad.freezing._behaviour import apply_behaviour
from msgrad.freezing._claims import Claim, Record
from msgrad.freezing._unheld import log_adapting, warn_unheld
from msgrad.network import Pattern, one_walk, select, show

Kind = TypeVar("Kind", bound="Undoable")


class Undoable:
    """What is done to a network and can be taken back; as a context, at its end.

    Args:
        undo: Takes it back.
    """

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo: Callable[[], None] | None = undo

    @property
    def undone(self) -> bool:
        """Whether it was taken back."""
        return self._undo is None

    def undo(self) -> None:
        """Take back what this changed, exactly; a second time does nothing."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()


class Freeze(Undoable):
    """A change of what is frozen; undo it, or use it as a context.

    Made by `freeze` and `unfreeze`, never by hand.

    Attributes:
        names: The names of the parameters that were taken, in network order.
        changed: Those of them whose state changed.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> with mg.freeze(net, "0") as frozen:
        ...     frozen.names
        ['0.weight', '0.bias']
        >>> mg.is_frozen(net, "0")
        False
    """

    def __init__(
        self, verb: str, names: Sequence[str], changed: Sequence[str], undo: Callable[[], None]
    ) -> None:
        super().__init__(undo)
        self.names = list(names)
        self.changed = list(changed)
        self._verb = verb

    def __repr__(self) -> str:
        state = ", undone" if self.undone else ""
        return f"{self._verb}({len(self.names)} parameters, {len(self.changed)} changed{state})"


def freeze(
    net: nn.Cell,
    *patterns: Pattern,
    statistics: bool = True,
    dropout: bool = True,
    name: str | None = None,
) -> Freeze:
    """Keep the weights that the patterns select, in place; the gradient still passes through them.

    A cell whose weights are all frozen also behaves as in evaluation; a norm cell that is frozen in
    part only, and goes on adapting its statistics, is named in the log. A `TrainStep` notices at
    its next call. A plain optimizer that is already built keeps the parameters it was given and
    goes on moving them in GRAPH_MODE; a function under `ms.jit`, `ms.grad` or `ms.value_and_grad`
    that was made before must be made again. Give the whole network where you can: cells around
    `net` are not seen until a step runs.

    Args:
        net: Network to change, in place.
        *patterns: What to freeze, see `select`; taken of it are the weights, whatever their flags
            say: behaviour is held of a layer too whose flags were turned off by hand.
        statistics: Wholly frozen norm cells normalise with their running statistics and keep them.
        dropout: In wholly frozen cells dropout is off, and so is all else that reads `training`.
        name: What to call this freeze in messages, instead of the call as it was written.

    Returns:
        The freeze, with the names in network order; undo it or use it as a context.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: No pattern, or what is selected are statistics and integers only.
        ArgumentTypeError: An argument has a wrong type.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> mg.freeze(net, "0").names
        ['0.weight', '0.bias']
        >>> [p.name for p in net.trainable_params()]
        ['2.weight', '2.bias']
    """
    for wish, given in (("statistics", statistics), ("dropout", dropout)):
        if not isinstance(given, bool):
            raise ArgumentTypeError(f"{wish} {given!r} is no choice; give True or False")
    with one_walk():
        found = _selected(net, patterns)
        if not any(r.can_train for r in found):
            raise _nothing_left("freeze", net, patterns)
        text = name or _call("freeze", patterns)
        return make_claims(net, [(Claim(text, statistics=statistics, dropout=dropout), found)])


def make_claims(net: nn.Cell, claims: Sequence[tuple[Claim, Sequence[Record]]]) -> Freeze:
    """Let claims stand, each on the weights among its records whatever their flags say."""
    taken = [(claim, record) for claim, found in claims for record in found if record.can_train]
    records = [record for _, record in taken]
    for claim, record in taken:
        _claims.lift_loaded([record], {claim.patterns})
    moved = [r for r in records if r.parameter.requires_grad]
    for claim, record in taken:
        record.claim(claim)

    def lift() -> None:
        for claim, record in taken:
            claim.undone = True
            record.lift(claim)
        _settle(net)

    try:
        _settle(net)
    except Warning:
        # raised where warnings are errors: whoever made the freeze has no handle to undo it
        lift()
        raise
    adapting = [record for claim, found in claims if claim.statistics for record in found]
    if adapting:
        log_adapting(net, adapting, adapting)
    return Freeze("freeze", _names(records), _names(moved), lift)


def unfreeze(net: nn.Cell, *patterns: Pattern, force: bool = False) -> Freeze:
    """Lift every claim on what the patterns select, in place, so that it may move again.

    What the model itself made untrainable stays so and is named in a warning.

    Args:
        net: Network to change, in place.
        *patterns: What to unfreeze, see `select`; none means the whole network.
        force: Also turn on parameters whose flag was False before msgrad first saw them; running
            statistics and integers never.

    Returns:
        The change, with the names in network order; undo it or use it as a context.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: Nothing that is selected can be turned on.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "*")
        >>> mg.unfreeze(net, "*.bias").changed
        ['0.bias', '1.bias']
    """
    with one_walk():
        found = _selected(net, patterns or ("*",))
        taken = [r for r in found if r.design or (force and r.can_train)]
        if not taken:
            raise _nothing_left("unfreeze", net, patterns)
        off = [r for r in found if r.can_train and not r.design and not force]
        _warn_untrainable(off)
        before = [(r, r.own_flag, r.flag_at_first, r.claims) for r in taken + off]
        moved = [r for r in taken if not r.parameter.requires_grad]
        for record in taken:
            record.flag_at_first = True
            record.release(flag=True)
        for record in off:
            record.release(flag=record.own_flag)

        def restore() -> None:
            for record, base, design, claims in before:
                record.flag_at_first = design
                record.restore(base, claims)
            _settle(net)

        _settle(net)
        left = [r for r in _claims.records_of(net).values() if any(c.statistics for c in r.claims)]
        log_adapting(net, taken, left)
        return Freeze("unfreeze", _names(taken), _names(moved), restore)


def is_frozen(net: nn.Cell, *patterns: Pattern) -> bool:
    """Say whether all weights that the patterns select are frozen; none means the whole network.

    Frozen is what a claim holds, and what has its flag turned off by hand.

    Args:
        net: Network to look at.
        *patterns: See `select`.

    Returns:
        True where nothing that is trainable by design may move.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: Nothing that is selected is trainable by design.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> mg.is_frozen(net, "0"), mg.is_frozen(net)
        (True, False)
    """
    return frozen_state(net, *patterns) == "frozen"


def frozen_state(net: nn.Cell, *patterns: Pattern) -> Literal["frozen", "trainable", "mixed"]:
    """Say whether the weights that the patterns select are frozen, trainable, or some of each.

    Args:
        net: Network to look at.
        *patterns: See `select`; none means the whole network.

    Returns:
        "frozen", "trainable" or "mixed".

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: Nothing that is selected is trainable by design.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "*.bias")
        >>> mg.frozen_state(net, "0")
        'mixed'
    """
    with one_walk():
        found = _selected(net, patterns or ("*",))
        # what the model made untrainable is looked at where it is claimed, or where nothing else is
        taken = [r for r in found if r.design or r.claims] or [r for r in found if r.can_train]
        if not taken:
            raise _nothing_left("frozen_state", net, patterns)
        states = {r.trains for r in taken}
        if len(states) == 2:
            return "mixed"
        return "trainable" if states == {True} else "frozen"


def _selected(net: nn.Cell, patterns: Sequence[Pattern]) -> list[Record]:
    if not isinstance(net, nn.Cell):
        kind = type(net).__name__
        raise ArgumentTypeError(f"net {net!r} is a {kind}; give the Cell that holds the parameters")
    chosen = select(net, *patterns)
    records = _claims.records_of(net)
    return [records[id(p)] for p in chosen]


def _names(records: Sequence[Record]) -> list[str]:
    return [str(r.parameter.name) for r in records]


def _nothing_left(verb: str, net: nn.Cell, patterns: Sequence[Pattern]) -> ArgumentError:
    found = _selected(net, patterns or ("*",))
    off = [r for r in found if r.can_train]
    matched = f"{_call(verb, patterns)} matched {len(found)} parameters"
    fact = f"{matched}, none of them trainable by design"
    if off:
        names = ", ".join(_names(off[:3]))
        return ArgumentError(
            f"{fact}: {names} had requires_grad False before msgrad saw them; "
            "use unfreeze(…, force=True)"
        )
    return ArgumentError(f"{fact}: running statistics and integers never train; name a weight")


def _call(verb: str, patterns: Sequence[Pattern]) -> str:
    return f"{verb}({', '.join(show(p) for p in patterns)})"


def _warn_untrainable(records: Sequence[Record]) -> None:
    if records:
        names = ", ".join(_names(records[:5])) + (" …" if len(records) > 5 else "")
        warnings.warn(
            f"{len(records)} parameters stay untrainable, their flag was False before msgrad saw "
            f"them: {names}; unfreeze(…, force=True) turns them on",
            stacklevel=3,
        )


def _settle(net: nn.Cell) -> None:
    _claims.claims_changed()
    with one_walk():
        warn_unheld(net, apply_behaviour(net))
