"""Updates: weights changed by the user's own functions, outside the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad._claims import see
from msgrad._errors import ArgumentError, ArgumentTypeError, FrozenWeightError, ShapeError
from msgrad._mode import running_in
from msgrad._passes import Pass, Shapes, Sums, Values, Work, Write
from msgrad._rules import (
    HOW_TO_WRITE,
    Rule,
    check_callable,
    check_readable,
    companions_of,
    takes_step,
)
from msgrad._select import Pattern, select, show
from msgrad._weights import bits, copy_of, write

When = Literal["before_forward", "after_gradient", "after_step"]
WHEN = ("before_forward", "after_gradient", "after_step")
_EAGERLY = f"{HOW_TO_WRITE}; or pass compiled=False"


def update_weights(
    net: nn.Cell,
    rules: Mapping[Pattern, Rule],
    *,
    force: bool = False,
    compiled: bool = True,
    allow_nonfinite: bool = False,
) -> list[str]:
    """Change weights by functions of one's own, now and in place; the optimizer keeps the weights.

    All new values are checked before the first is written. The functions are compiled at every call, so
    that each call uses the numbers that they read then; where the same rules are applied again and
    again, make a `WeightUpdates` once and call it.

    Args:
        net: Network to change, in place.
        rules: Patterns (see `select`) with a function ``fn(w)`` or ``fn(w, step)`` each, ``step`` being
            0 here; or a Cell, see `WeightUpdates`. Of two that match one weight the last wins. Taken is
            what is trainable by design.
        force: Also change frozen weights.
        compiled: Whether the functions run in a compiled graph. False runs them one by one as Python, with
            the new values of all weights in memory at once.
        allow_nonfinite: Also write NaN and infinity.

    Returns:
        The names of the changed weights, in network order.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: A rule selects no weight that is trainable by design, cannot be compiled, or
            returns NaN or infinity.
        ArgumentTypeError: A rule is no function.
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
    works = plan_works(net, rules, force=force)
    step = Tensor(0, mstype.int32)
    if compiled:
        check_compiled(works, step, _EAGERLY)
    if compiled and (allow_nonfinite or _checked_by_sums(works, step)):
        _run(Pass(Write, works, step))
    else:
        _write_checked(works, step, compiled=compiled, allow_nonfinite=allow_nonfinite)
    changed = {id(weight) for work in works for weight in work.weights}
    return [str(record.parameter.name) for key, record in see(net).items() if key in changed]


class WeightUpdates(nn.Cell):
    """Changes of weights by functions of one's own, compiled into a `TrainStep` or called by hand.

    The change is no part of the gradient. Within a step it happens once per optimizer update, at the
    point that ``when`` names; called by hand it happens at once. NaN and infinity are not looked
    for; shapes, dtypes and frozen weights are, when it is made and at each call by hand.

    A rule is a function ``fn(w)`` or ``fn(w, step)`` that returns the new weight; ``step`` is an int32 scalar,
    the number of updates done so far. It reads Python numbers once, when the step is compiled.
    A rule with a state is a Cell with ``construct(self, w)`` or ``construct(self, w, step)``; its Parameters are saved
    with the step. One Cell serves all weights of its pattern, so its own Parameters are shared by them. Two
    methods give it a value for each weight, passed after ``w``: ``state_of(self, parameter)`` returns a new
    Parameter, saved with the step, and ``companion_of(self, parameter)`` a tensor that belongs to others.

    Args:
        net: Network that owns the weights.
        rules: Patterns (see `select`) with a function or a Cell each; of two that match one weight the last
            wins. Taken is what is trainable by design.
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
        ArgumentTypeError: A rule is no function.
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
        when: When = "after_step",
        force: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        if when not in WHEN:
            raise ArgumentError(f"when {when!r} is no point of a step; give one of {', '.join(WHEN)}")
        works = plan_works(net, rules, force=force)
        check_compiled(works, Tensor(0, mstype.int32), HOW_TO_WRITE)
        self.when = when
        self.force = force
        self.__dict__["_works"] = works
        # In __dict__, as a child it would make the network's weights the update's.
        self.__dict__["_net"] = net
        self.groups = nn.CellList([Write(work) for work in works], auto_prefix=False)
        self.step = Parameter(Tensor(0, mstype.int32), name="step", requires_grad=False)
        for work in works:
            for weight, state in zip(work.weights, work.owned, strict=False):
                state.name = f"{work.place}.{weight.name}"
                self.insert_param_to_cell(state.name, state, check_name_contain_dot=False)
        self.name_state("updates")

    @property
    def names(self) -> list[str]:
        """The names of the weights it changes, in network order."""
        changed = {id(weight) for work in self._works for weight in work.weights}
        return [str(r.parameter.name) for key, r in see(self._net).items() if key in changed]

    def name_state(self, prefix: str) -> None:
        """Name the counter and the states of the rules, so that two updates in one step differ.

        Args:
            prefix: What the names begin with.
        """
        self.step.name = f"{prefix}.step"
        for work in self._works:
            for weight, state in zip(work.weights, work.owned, strict=False):
                state.name = f"{prefix}.{work.place}.{weight.name}"
            if isinstance(work.rule, nn.Cell):
                for path, state in work.rule.parameters_and_names():
                    state.name = f"{prefix}.{work.place}.{path}"

    def check(self) -> None:
        """Refuse to go on where a weight has been frozen since.

        Raises:
            FrozenWeightError: A weight is frozen and ``force`` is False.
        """
        if not self.force:
            check_frozen(self._net, [weight for work in self._works for weight in work.weights])

    def __call__(self) -> Tensor:
        self.check()
        with running_in(ms.GRAPH_MODE):
            return super().__call__()

    def construct(self) -> Tensor:
        for group in self.groups:
            group(self.step)
        ops.assign_add(self.step, 1)
        return self.step.value()


def plan_works(net: nn.Cell, rules: Mapping[Pattern, Rule], *, force: bool) -> list[Work]:
    """Give each weight to the last rule that matches it."""
    if not isinstance(rules, Mapping) or not rules:
        raise ArgumentTypeError(f"rules {rules!r} hold no rule; give a dict {{pattern: fn}}")
    records = see(net)
    last: dict[int, int] = {}
    for place, (pattern, rule) in enumerate(rules.items()):
        check_callable(show(pattern), rule)
        found = select(net, pattern)
        taken = [id(parameter) for parameter in found if records[id(parameter)].design]
        if not taken:
            raise ArgumentError(
                f"rule {show(pattern)} matches {len(found)} parameters, none of them trainable by design: "
                f"{', '.join(found.names[:3])}; name a weight"
            )
        last.update(dict.fromkeys(taken, place))
    if not force:
        check_frozen(net, [records[key].parameter for key in last])
    works = []
    for place, (pattern, rule) in enumerate(rules.items()):
        weights = tuple(r.parameter for key, r in records.items() if last.get(key) == place)
        if weights:
            works.append(_work(show(pattern), place, rule, weights))
    return works


def check_frozen(net: nn.Cell, weights: Sequence[Parameter]) -> None:
    """Refuse to change a weight that is frozen."""
    records = see(net)
    frozen = [str(weight.name) for weight in weights if not records[id(weight)].trains]
    if frozen:
        raise FrozenWeightError(
            f"update aims at {len(frozen)} frozen of {len(weights)} weights: {', '.join(frozen[:3])}; "
            "unfreeze them, or pass force=True"
        )


def _work(label: str, place: int, rule: Rule, weights: tuple[Parameter, ...]) -> Work:
    companions = [companions_of(rule, weight) for weight in weights]
    kinds = list(zip(*companions, strict=True))
    beside = tuple(tuple(value for value, _ in kind) for kind in kinds)
    owned = tuple(value for kind in kinds for value, owned in kind if owned)
    for state in owned:
        state.requires_grad = False
    step = takes_step(label, rule, 1 + len(beside))
    return Work(label, place, rule, weights, beside, owned, step)


def check_compiled(works: Sequence[Work], step: Tensor, remedy: str) -> None:
    """Compile each rule alone, on one weight of each shape and dtype, and compare what it returns."""
    for work in works:
        check_readable(work.label, work.rule, remedy)
    samples = [work.at(_one_of_each(work.weights)) for work in works]
    kept = _states(works)
    try:
        found = _run(Pass(Shapes, samples, step))
    except Exception:
        # The message does not say which rule it was.
        found = tuple(pair for work in samples for pair in _shapes_of(work, step, remedy))
    _restore(kept)
    expected = [(work, weight) for work in samples for weight in work.weights]
    for (work, weight), (shape, dtype) in zip(expected, found, strict=True):
        _check_shape(work.label, weight, shape, dtype)


def _shapes_of(work: Work, step: Tensor, remedy: str) -> tuple[Any, ...]:
    try:
        return _run(Pass(Shapes, [work], step))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArgumentError(f"rule {work.label} cannot be compiled ({reason}); {remedy}") from error


def _one_of_each(weights: Sequence[Parameter]) -> list[int]:
    first: dict[tuple[Any, ...], int] = {}
    for place, weight in enumerate(weights):
        first.setdefault((weight.shape, weight.dtype), place)
    return list(first.values())


def _check_shape(label: str, weight: Parameter, shape: tuple[int, ...], dtype: Any) -> None:
    if dtype is None:
        raise ArgumentTypeError(f"rule {label} returns no Tensor for {weight.name!r}; return the new weight")
    if (tuple(shape), dtype) != (weight.shape, weight.dtype):
        raise ShapeError(
            f"rule {label} returns another shape or dtype than {weight.name!r} has; return the weight's own\n"
            f"before: {_written(weight.dtype)} {weight.shape}\n"
            f"after: {_written(dtype)} {tuple(shape)}"
        )


def _written(dtype: Any) -> str:
    return str(dtype).lower()


def _run(cell: nn.Cell) -> Any:
    with running_in(ms.GRAPH_MODE):
        return cell()


def _states(works: Sequence[Work]) -> list[tuple[Parameter, np.ndarray]]:
    return [(state, copy_of(state)) for work in works for state in work.state]


def _restore(kept: Sequence[tuple[Parameter, np.ndarray]]) -> None:
    for parameter, values in kept:
        write(parameter, values)


def _checked_by_sums(works: Sequence[Work], step: Tensor) -> bool:
    """Whether all new values are finite and come out the same when asked again.

    Then they need not be kept until all are checked: the rules run once more and write. Rules that draw
    random numbers or have a state fail this and are answered by the other way.
    """
    if any(work.state for work in works):
        return False
    sums = Pass(Sums, works, step)
    first, second = ([copy_of(value) for value in _run(sums)] for _ in range(2))
    return all(
        np.isfinite(one) and bits(one) == bits(other) for one, other in zip(first, second, strict=True)
    )


def _write_checked(works: Sequence[Work], step: Tensor, *, compiled: bool, allow_nonfinite: bool) -> None:
    """Compute all new values, check them, and only then write."""
    weights = [weight for work in works for weight in work.weights]
    kept = _states(works)
    try:
        values = _run(Pass(Values, works, step)) if compiled else _eager_values(works, step)
        if not allow_nonfinite:
            _check_finite(weights, values)
    except Exception:
        _restore(kept)
        raise
    for weight, value in zip(weights, values, strict=True):
        write(weight, value)


def _eager_values(works: Sequence[Work], step: Tensor) -> list[Tensor]:
    values = []
    with running_in(ms.PYNATIVE_MODE):
        for work in works:
            for weight, *beside in zip(work.weights, *work.beside, strict=True):
                value = work.rule(weight, *beside, *([step] if work.takes_step else []))
                is_tensor = isinstance(value, Tensor)
                shape, dtype = (value.shape, value.dtype) if is_tensor else ((), None)
                _check_shape(work.label, weight, shape, dtype)
                values.append(value)
    return values


def _check_finite(weights: Sequence[Parameter], values: Sequence[Tensor]) -> None:
    wrong = [str(w.name) for w, value in zip(weights, values, strict=True) if not np.isfinite(copy_of(value)).all()]
    if wrong:
        raise ArgumentError(
            f"update returns nan or infinity for {len(wrong)} of {len(weights)} weights: {', '.join(wrong[:3])}; "
            "mend the rule, or pass allow_nonfinite=True"
        )
