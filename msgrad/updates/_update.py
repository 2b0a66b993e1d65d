"""Updates: weights changed by the user's own functions, outside the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.backend import running_in
from msgrad.errors import ArgumentError
from msgrad.network import Pattern, bits, copy_of, write
from msgrad.updates._bound_rule import (
    BoundRule,
    batches,
    bind,
    check_frozen,
    check_there,
    name_states,
    names_of,
)
from msgrad.updates._compile import (
    RuleGraph,
    RuleGraphs,
    SumGraph,
    ValueGraph,
    WriteGraph,
    check_shape,
    keep_states,
    put_back,
    try_rules,
)
from msgrad.updates._readable import HOW_TO_WRITE, Rule

WHEN = ("before_forward", "after_gradient", "after_step")
_EAGERLY = f"{HOW_TO_WRITE}; or pass compiled=False"
# To compile 1,000 weights in one graph takes 0.4 GB, in five 0.12 GB and a fifth less time.
_AT_ONCE = 200


def update_weights(
    net: nn.Cell,
    rules: Mapping[Pattern, Rule],
    *,
    force: bool = False,
    compiled: bool = True,
    allow_nonfinite: bool = False,
) -> list[str]:
    """Change weights by functions of one's own, now and in place; the optimizer keeps the weights.

    All new values are checked before the first is written. The functions are compiled at every
    call, so that each call uses the numbers that they read then; where the same rules are applied
    again and again, make a `WeightUpdates` once and call it.

    Args:
        net: Network to change, in place.
        rules: Patterns (see `select`) with a function ``fn(w)`` or ``fn(w, step)`` each, ``step``
            being 0 here; or a Cell, see `WeightUpdates`. Of two that match one weight the last
            wins. Taken is what is trainable by design.
        force: Also change frozen weights.
        compiled: Whether the functions run in a compiled graph. False runs them one by one as
            Python, with the new values of all weights in memory at once.
        allow_nonfinite: Also write NaN and infinity.

    Returns:
        The names of the changed weights, in network order.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: A rule selects no weight that is trainable by design, cannot be compiled, or
            returns NaN or infinity.
        ArgumentTypeError: A rule is no function, or returns no Tensor.
        ShapeError: A rule returns another shape or dtype than the weight's.
        FrozenWeightError: A rule is aimed at a frozen weight.

    Examples:
        >>> from mindspore import nn, ops
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(2, 2, "ones"), nn.Dense(2, 1, "ones"))
        >>> mg.update_weights(net, {"*.weight": mg.rules.multiply(0.5), "1.weight": ops.neg})
        ['0.weight', '1.weight']
        >>> net[0].weight.asnumpy().tolist(), net[1].weight.asnumpy().tolist()
        ([[0.5, 0.5], [0.5, 0.5]], [[-1.0, -1.0]])
    """
    bound_rules = bind(net, rules, force=force)
    step = Tensor(0, mstype.int32)
    if compiled:
        try_rules(bound_rules, step, _EAGERLY)
    if compiled and (allow_nonfinite or _checked_by_sums(bound_rules, step)):
        _run_all(_graphs(WriteGraph, bound_rules, step))
    else:
        _write_checked(bound_rules, step, compiled=compiled, allow_nonfinite=allow_nonfinite)
    return names_of(net, bound_rules)


class WeightUpdates(nn.Cell):
    """Changes of weights by functions of one's own, compiled into a `TrainStep` or called by hand.

    The change is no part of the gradient. Within a step it happens once per optimizer update, at
    the point that ``when`` names; called by hand it happens at once. NaN and infinity are not
    looked for; shapes, dtypes and frozen weights are, when it is made and at each call by hand.

    A rule is a function ``fn(w)`` or ``fn(w, step)`` that returns the new weight; ``step`` is an
    int32 scalar, the number of updates done so far. It reads Python numbers once, when the step is
    compiled. A rule with a state is a Cell with ``construct(self, w)`` or ``construct(self, w,
    step)``; its Parameters are saved with the step. One Cell serves all weights of its pattern, so
    its own Parameters are shared by them. Two methods give it a value for each weight, passed after
    ``w``: ``state_of(self, parameter, path)`` returns a new Parameter, saved with the step, and
    ``companion_of(self, parameter, path)`` a tensor that belongs to others.

    Args:
        net: Network that owns the weights.
        rules: Patterns (see `select`) with a function or a Cell each; of two that match one weight
            the last wins. Taken is what is trainable by design.
        when: "before_forward" (the gradient is that of the changed weights), "after_gradient" (the
            gradient is that of the weights before the change; then the change, then the optimizer),
            or "after_step".
        force: Also change frozen weights.

    Outputs:
        Tensor of shape (), int32: the number of updates done.

    Attributes:
        when: As given.
        names: The names of the weights it changes, in network order.
        step: The number of updates done, a Parameter.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: ``when`` is unknown, a rule selects no weight that is trainable by design, or
            cannot be compiled.
        ArgumentTypeError: A rule is no function, or returns no Tensor.
        ShapeError: A rule returns another shape or dtype than the weight's.
        FrozenWeightError: A rule is aimed at a frozen weight.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, "ones")
        >>> halve = mg.WeightUpdates(net, {"weight": mg.rules.multiply(0.5)})
        >>> int(halve()), int(halve()), net.weight.asnumpy().tolist()
        (1, 2, [[0.25, 0.25]])
    """

    def __init__(
        self,
        net: nn.Cell,
        rules: Mapping[Pattern, Rule],
        when: str = "after_step",
        force: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if when not in WHEN:
            raise ArgumentError(
                f"when {when!r} is no point of a step; give one of {', '.join(WHEN)}"
            )
        bound_rules = bind(net, rules, force=force)
        try_rules(bound_rules, Tensor(0, mstype.int32), HOW_TO_WRITE)
        self.when = when
        self.force = force
        self.__dict__["_bound_rules"] = bound_rules
        # In __dict__, as a child it would make the network's weights the update's.
        self.__dict__["_net"] = net
        self.groups = nn.CellList([WriteGraph(bound) for bound in bound_rules], auto_prefix=False)
        self.step = Parameter(Tensor(0, mstype.int32), name="step", requires_grad=False)
        for state in (state for bound in bound_rules for state in bound.owned):
            self.insert_param_to_cell(state.name, state, check_name_contain_dot=False)
        self.name_state("updates")

    @property
    def names(self) -> list[str]:
        """The names of the weights it changes, in network order."""
        return names_of(self._net, self._bound_rules)

    def name_state(self, prefix: str) -> None:
        """Name the counter and the states of the rules, so that two updates in one step differ.

        Args:
            prefix: What the names begin with.
        """
        self.step.name = f"{prefix}.step"
        name_states(self._bound_rules, prefix)

    def check(self) -> None:
        """Refuse to go on where a weight has been frozen or exchanged since.

        Raises:
            ArgumentError: A weight is not in the network any more.
            FrozenWeightError: A weight is frozen and ``force`` is False.
        """
        weights = [weight for bound in self._bound_rules for weight in bound.weights]
        check_there(self._net, weights, "WeightUpdates")
        if not self.force:
            check_frozen(self._net, weights)

    def __call__(self) -> Tensor:
        self.check()
        with running_in(ms.GRAPH_MODE):
            return super().__call__()

    def construct(self) -> Tensor:
        for group in self.groups:
            group(self.step)
        ops.assign_add(self.step, 1)
        return self.step.value()


def _graphs(
    kind: type[RuleGraph], bound_rules: Sequence[BoundRule], step: Tensor
) -> list[RuleGraphs]:
    return [RuleGraphs(kind, batch, step) for batch in batches(bound_rules, _AT_ONCE)]


def _run_all(graphs: Sequence[RuleGraphs]) -> list[Tensor]:
    with running_in(ms.GRAPH_MODE):
        return [value for one in graphs for value in one()]


def _checked_by_sums(bound_rules: Sequence[BoundRule], step: Tensor) -> bool:
    """Whether all new values are finite, and come out the same when asked for again.

    Then they need not be kept until all are checked: the rules run once more and write. Rules that
    draw random numbers or have a state fail this and are answered by the other way.
    """
    if any(bound.state for bound in bound_rules):
        return False
    graphs = _graphs(SumGraph, bound_rules, step)
    first, second = ([copy_of(value) for value in _run_all(graphs)] for _ in range(2))
    return all(
        np.isfinite(one) and bits(one) == bits(other)
        for one, other in zip(first, second, strict=True)
    )


def _write_checked(
    bound_rules: Sequence[BoundRule], step: Tensor, *, compiled: bool, allow_nonfinite: bool
) -> None:
    """Compute all new values, check them, and only then write."""
    weights = [weight for bound in bound_rules for weight in bound.weights]
    kept = keep_states(bound_rules)
    try:
        values = (
            _run_all(_graphs(ValueGraph, bound_rules, step))
            if compiled
            else _eager_values(bound_rules, step)
        )
        if not allow_nonfinite:
            _check_finite(weights, values)
    except Exception:
        put_back(kept)
        raise
    for weight, value in zip(weights, values, strict=True):
        write(weight, value)


def _eager_values(bound_rules: Sequence[BoundRule], step: Tensor) -> list[Tensor]:
    values = []
    with running_in(ms.PYNATIVE_MODE):
        for bound in bound_rules:
            more = (step,) if bound.takes_step else ()
            for weight, *beside in zip(bound.weights, *bound.beside, strict=True):
                # A copy, so that a function that works in place changes nothing before the checks.
                value = bound.rule(weight.value().copy(), *beside, *more)
                shape, dtype = (
                    (value.shape, value.dtype) if isinstance(value, Tensor) else ((), None)
                )
                check_shape(bound.label, weight, shape, dtype)
                values.append(value)
    return values


def _check_finite(weights: Sequence[Parameter], values: Sequence[Tensor]) -> None:
    pairs = zip(weights, values, strict=True)
    wrong = [str(weight.name) for weight, value in pairs if not np.isfinite(copy_of(value)).all()]
    if wrong:
        raise ArgumentError(
            f"update returns nan or infinity for {len(wrong)} of {len(weights)} weights: "
            f"{', '.join(wrong[:3])}; mend the rule, or pass allow_nonfinite=True"
        )
