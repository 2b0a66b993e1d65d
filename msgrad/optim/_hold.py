"""Holding weights at run time: an update mask in the compiled step, flipped without compiling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype
from mindspore.ops import composite

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import copy_of, select_names, write
from msgrad.optim._state import own_parameters, owner_of
from msgrad.optim._wrapper import OPTIMIZERS, OptimizerWrapper


class Masks:
    """One mask per weight, shared by its state of the same shape; state of another has its own.

    A flag per weight says whether any of its elements is held: a step that looks at all masks to
    find that nothing is held would take as long as one that holds.

    Args:
        owned: Name of a weight and a Parameter, which is the weight or state of it; weights first.

    Examples:
        >>> from mindspore import Tensor
        >>> masks = Masks([("w", Parameter(Tensor([1.0, 2.0, 3.0]), name="w"))])
        >>> masks.set_rows("w", [0, 2], held=True)
        [0, 2]
        >>> masks.rows()["w"].tolist()
        [True, False, True]
    """

    def __init__(self, owned: Sequence[tuple[str, Parameter]]) -> None:
        self._of: dict[str, list[Parameter]] = {}
        self._flags: dict[str, Parameter] = {}
        self.each = [self._mask_of(name, value) for name, value in owned]

    def _mask_of(self, name: str, value: Parameter) -> Parameter:
        if name not in self._of:
            self._of[name] = []
            self._flags[name] = blank((), mstype.int32, f"hold_flag.{name}")
        masks = self._of[name]
        if not masks or masks[0].shape != value.shape:
            masks.append(blank(value.shape, mstype.bool_, f"hold_mask.{value.name}"))
            return masks[-1]
        return masks[0]

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def of(self, name: str) -> Parameter:
        """Return the mask of a weight."""
        return self._of[name][0]

    @property
    def parameters(self) -> list[Parameter]:
        """Every mask once."""
        return [mask for masks in self._of.values() for mask in masks]

    @property
    def flags(self) -> list[Parameter]:
        """The flag of every weight, 1 where any of its elements is held."""
        return list(self._flags.values())

    def rows(self) -> dict[str, np.ndarray]:
        """Say of each row whether it is held; weights without elements are left out."""
        found = {name: copy_of(masks[0]) for name, masks in self._of.items()}
        return {name: _by_row(mask) for name, mask in found.items() if mask.size}

    def set(self, name: str, *, held: bool) -> None:
        """Hold or release a whole weight."""
        for mask in self._of[name]:
            write(mask, np.full(mask.shape, held))
        write(self._flags[name], np.int32(held))

    def set_rows(self, name: str, rows: Any, *, held: bool) -> list[int]:
        """Hold or release some rows, and return those that are held now.

        Raises:
            ArgumentError: The rows do not exist, or there is state that has no such rows.
        """
        mask, *others = self._of[name]
        if mask.ndim == 0:
            raise ArgumentError(f"weight {name!r} is a number without rows; hold it whole")
        if others:
            raise ArgumentError(
                f"weight {name!r} {mask.shape} has optimizer state of another shape "
                f"{others[0].shape}, whose rows are not its rows; hold it whole"
            )
        value = copy_of(mask)
        value[_numbers(name, rows, len(value))] = held
        write(mask, value)
        write(self._flags[name], np.int32(value.any()))
        return numbers_of(_by_row(value))


def blank(shape: tuple[int, ...], dtype: Any, name: str) -> Parameter:
    """Return a Parameter of zeros that nothing trains."""
    return Parameter(Tensor(np.zeros(shape, np.float32), dtype), name=name, requires_grad=False)


def numbers_of(rows: np.ndarray) -> list[int]:
    """List the numbers of the rows that are True."""
    return [int(number) for number in np.flatnonzero(rows)]


def _by_row(mask: np.ndarray) -> np.ndarray:
    return mask.reshape(len(mask) if mask.ndim else 1, -1).all(axis=1)


def _numbers(name: str, rows: Any, count: int) -> np.ndarray:
    rows = rows.asnumpy() if isinstance(rows, Tensor) else rows
    try:
        numbers = np.atleast_1d(np.arange(count)[rows])
    except IndexError as error:
        raise ArgumentError(
            f"rows {rows!r} do not fit the {count} rows of {name!r}; give numbers from "
            f"{-count} to {count - 1}, a slice, or {count} booleans"
        ) from error
    if numbers.ndim != 1 or not numbers.size:
        raise ArgumentError(f"rows {rows!r} are none of the {count} rows of {name!r}; give some")
    return numbers


Rows: TypeAlias = int | slice | Sequence[int] | np.ndarray

# HyperMap, not a loop: the tensors of a ResNet-18 unrolled exceed the call depth of the compiler.
_keep = composite.MultitypeFuncGraph("keep")
_put_back = composite.MultitypeFuncGraph("put_back")


@_keep.register("Tensor", "Tensor")
def _keep_tensor(before: Parameter, value: Parameter) -> Tensor:
    return ops.assign(before, value)


@_put_back.register("Tensor", "Tensor", "Tensor")
def _put_back_tensor(mask: Parameter, before: Parameter, value: Parameter) -> Tensor:
    # select and assign move bits; adding 0.0 or multiplying by the mask would lose -0.0 and NaN
    return ops.assign(value, ops.select(mask, before, value))


class HoldOptimizer(OptimizerWrapper):
    """An optimizer whose weights, or rows of them, can be held and released while it runs.

    What is held keeps its bits, and so does its optimizer state; counters and rates that several
    weights share go on. The gradient is still computed and behaviour does not change: for that,
    see `freeze`. Holding and releasing compile nothing, in a train cell, in a
    ``value_and_grad`` loop and in ``mindspore.jit``. While something is held, a step copies what
    may be held before the optimizer runs and puts back what is held after it; so a weight that is
    loaded or written while it is held keeps its new value. While nothing is held it costs next to
    nothing.

    It stands wherever the optimizer could: attributes and methods that it does not have itself are
    those of the optimizer, and it is an instance of MindSpore's ``Optimizer`` where that is one.
    The masks are parameters, ``hold_mask.<weight>`` and ``hold_flag.<weight>``, so checkpoints of
    the optimizer and a `TrainStep` that changes its stage take them along.

    Args:
        optimizer: Optimizer of ``nn``, ``mindspore.experimental.optim`` or ``mint.optim``, whole:
            groups that are added to it later cannot be held.
        may_hold: Patterns over the names of its parameters: what can be held. It costs memory for
            one more copy of these weights and their state, and a byte per element; and time, while
            anything is held, to copy and select all of them.

    Inputs:
        Gradients, a tuple of Tensors in the order of ``optimizer.parameters``.

    Outputs:
        True, a Tensor of bool.

    Raises:
        ArgumentTypeError: ``optimizer`` is no optimizer.
        ArgumentError: ``optimizer`` is a HoldOptimizer already.
        NoMatchError: A pattern of ``may_hold`` selects nothing.

    Examples:
        >>> import numpy as np
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> optimizer = mg.HoldOptimizer(nn.Momentum(net.trainable_params(), 0.1, 0.9))
        >>> step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
        >>> optimizer.hold("0")
        ['0.weight', '0.bias']
        >>> before = mg.Snapshot(net)
        >>> _ = step(Tensor(np.ones((2, 4), np.float32)), Tensor(np.zeros((2, 2), np.float32)))
        >>> before.moved()
        ['2.weight', '2.bias']
        >>> optimizer.release("0.bias"), optimizer.held
        (['0.bias'], ['0.weight'])
    """

    def __new__(cls: Any, optimizer: object = None, **_: object) -> HoldOptimizer:
        kinds = [kind for kind in OPTIMIZERS if isinstance(optimizer, kind)]
        return super().__new__(_of_kind(cls, kinds[0]) if kinds else cls)

    def __init__(self, optimizer: nn.Cell, *, may_hold: str | Iterable[str] = ("*",)) -> None:
        _check_optimizer(optimizer)
        super().__init__(optimizer)
        weights = {str(p.name): p for p in optimizer.parameters}
        names = _chosen(weights, (may_hold,))
        kept = {name: weights[name] for name in names}
        owned = [*kept.items(), *_slots(optimizer, weights, kept)]
        values = [value for _, value in owned]
        masks = Masks(owned)
        self.masks = ParameterTuple(masks.parameters)
        self.flags = ParameterTuple(masks.flags)
        # Beside the parameters that MindSpore lists and saves: weights and state are listed
        # already, the copies are written anew in each step.
        own = self.__dict__
        own["_weights"] = weights
        own["_held"] = masks
        own["_values"] = ParameterTuple(values)
        own["_masks"] = ParameterTuple(masks.each)
        own["_before"] = ParameterTuple(
            [blank(v.shape, v.dtype, f"hold_anchor.{v.name}") for v in values]
        )
        self.map_each = composite.HyperMap()

    def construct(self, grads: tuple[Tensor, ...]) -> Tensor:
        count = ops.stack(self.flags).sum()
        if count > 0:
            grads = ops.depend(grads, self.map_each(_keep, self._before, self._values))
        # What the optimizer returns may be a constant: the branch behind it would not wait for it.
        count = ops.depend(count, self.optimizer(grads))
        if count > 0:
            count = ops.depend(
                count, self.map_each(_put_back, self._masks, self._before, self._values)
            )
        return count >= 0

    @property
    def masks_by_weight(self) -> dict[int, Parameter]:
        """The mask of each weight that may be held, by the id of the weight."""
        return {id(p): self._held.of(n) for n, p in self._weights.items() if n in self._held}

    @property
    def held(self) -> list[str]:
        """The names of the weights that are held whole, in the order of the optimizer."""
        return [name for name, rows in self._held.rows().items() if rows.all()]

    @property
    def held_rows(self) -> dict[str, list[int]]:
        """The rows that are held of weights of which other rows may move."""
        states = self._held.rows().items()
        return {name: numbers_of(rows) for name, rows in states if rows.any() and not rows.all()}

    def hold(self, *patterns: str | Iterable[str]) -> list[str]:
        """Keep weights and their optimizer state as they are, from the next step on.

        Args:
            *patterns: Patterns over the names of the optimizer's parameters, see `select`.

        Returns:
            The names that they select, in the order of the optimizer.

        Raises:
            NoMatchError: A pattern selects nothing.
            ArgumentError: No pattern, or one that selects what ``may_hold`` leaves out.
        """
        return self._set(patterns, held=True)

    def release(self, *patterns: str | Iterable[str]) -> list[str]:
        """Let weights move again, whole or in rows held; their optimizer state continues.

        Args:
            *patterns: Patterns over the names of the optimizer's parameters, see `select`.

        Returns:
            The names that they select, in the order of the optimizer.

        Raises:
            NoMatchError: A pattern selects nothing.
            ArgumentError: No pattern, or one that selects what ``may_hold`` leaves out.
        """
        return self._set(patterns, held=False)

    def hold_rows(self, name: str, rows: Rows) -> list[int]:
        """Keep some rows (along the first axis) of one weight, beside those that are held.

        Args:
            name: Name of the weight.
            rows: Numbers, a slice, or a boolean per row; negative numbers count from the end.

        Returns:
            All rows of the weight that are held now.

        Raises:
            NoMatchError: No weight has this name.
            ArgumentError: The rows do not exist, the name is that of several weights, or the
                optimizer keeps state that has no such rows.
        """
        return self._set_rows(name, rows, held=True)

    def release_rows(self, name: str, rows: Rows | None = None) -> list[int]:
        """Let some rows of one weight move again.

        Args:
            name: Name of the weight.
            rows: As in `hold_rows`; None means all.

        Returns:
            All rows of the weight that are still held.

        Raises:
            NoMatchError: No weight has this name.
            ArgumentError: The rows do not exist, the name is that of several weights, or the
                optimizer keeps state that has no such rows.
        """
        return self._set_rows(name, slice(None) if rows is None else rows, held=False)

    def _set(self, patterns: Sequence[Any], *, held: bool) -> list[str]:
        names = self._holdable(patterns)
        for name in names:
            self._held.set(name, held=held)
        return names

    def _set_rows(self, name: str, rows: Rows, *, held: bool) -> list[int]:
        names = self._holdable((name,))
        if len(names) != 1:
            raise ArgumentError(f"name {name!r} is that of {len(names)} weights; give that of one")
        return self._held.set_rows(names[0], rows, held=held)

    def _holdable(self, patterns: Sequence[Any]) -> list[str]:
        names = _chosen(self._weights, patterns)
        out = [name for name in names if name not in self._held]
        if out:
            raise ArgumentError(
                f"may_hold leaves out {len(out)} of {len(names)} selected weights: "
                f"{', '.join(out[:3])}; add them to may_hold, or name others"
            )
        return names


@cache
def _of_kind(cls: Any, kind: Any) -> type:
    """Return the class as a kind of MindSpore's optimizer, which `ms.Model` asks for."""
    public = [name for name in vars(kind) if not name.startswith("_") and name != "construct"]
    members = {name: _inner_attribute(name) for name in public}
    told = {key: getattr(cls, key) for key in ("__module__", "__qualname__", "__doc__")}
    return type(cls.__name__, (cls, kind), {**members, **told})


def _inner_attribute(name: str) -> property:
    return property(
        lambda self: getattr(self.optimizer, name),
        lambda self, value: setattr(self.optimizer, name, value),
    )


def _check_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, nn.Cell) or not hasattr(optimizer, "parameters"):
        raise ArgumentTypeError(
            f"optimizer {type(optimizer).__name__} is no optimizer; give one that is made, such as "
            "nn.Momentum(net.trainable_params(), 0.1, 0.9)"
        )
    if isinstance(optimizer, HoldOptimizer):
        raise ArgumentError("optimizer HoldOptimizer can hold already; use its hold and release")


def _chosen(weights: dict[str, Parameter], patterns: Iterable[Any]) -> list[str]:
    known = {id(p): name for name, p in weights.items()}
    return select_names(weights, *_flat(patterns, known))


def _flat(patterns: Iterable[Any], known: dict[int, str]) -> Iterator[str]:
    for pattern in patterns:
        if isinstance(pattern, str):
            yield pattern
        elif isinstance(pattern, Parameter):
            if id(pattern) not in known:
                raise ArgumentError(
                    f"pattern {pattern.name!r} is no parameter of the optimizer; give one of its "
                    f"{len(known)}, such as {next(iter(known.values()))!r}"
                )
            yield known[id(pattern)]
        elif isinstance(pattern, Iterable):
            yield from _flat(pattern, known)
        else:
            raise ArgumentTypeError(
                f"pattern {pattern!r} is no name; give strings, Parameters, or lists of these"
            )


def _slots(
    optimizer: nn.Cell, weights: dict[str, Parameter], kept: dict[str, Parameter]
) -> Iterator[tuple[str, Parameter]]:
    """List the state that belongs to one of the weights that may be held."""
    for state in own_parameters(optimizer, weights.values()):
        owner = owner_of(str(state.name), weights)
        if owner in kept:
            yield owner, state
