"""Several optimizers in one step: each takes the gradients of its own weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindspore import ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.optim._state import own_parameters, owner_of
from msgrad.optim._wrapper import core_of, parts_of

_OF_ONE = ("learning_rate", "param_groups", "get_lr", "global_step", "lrs")


class CombinedOptimizer(nn.Cell):
    """Optimizers that stand for one, and hand each of them its part of the gradients.

    `parameters` are those of the first, then those of the second, and so on.
    """

    def __init__(self, optimizers: Sequence[nn.Cell]) -> None:
        super().__init__(auto_prefix=False)
        _check(optimizers)
        self.optimizers = nn.CellList(list(optimizers), auto_prefix=False)
        self.counts = tuple(len(optimizer.parameters) for optimizer in optimizers)
        self.parameters = ParameterTuple([p for o in optimizers for p in o.parameters])
        # without it a functional graph takes the gradients as constants and compiles at every step
        self.enable_tuple_broaden = True

    def construct(self, grads: tuple[Tensor, ...]) -> Tensor:
        done = Tensor(True, mstype.bool_)
        begin = 0
        for number in range(len(self.counts)):
            end = begin + self.counts[number]
            done = ops.depend(done, self.optimizers[number](grads[begin:end]))
            begin = end
        return done

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE:
            raise AttributeError(
                f"{len(self.counts)} optimizers have a {name!r} each; read "
                f"step.optimizer.optimizers[0].{name}"
            )
        return super().__getattr__(name)


def as_one(made: Any) -> Any:
    """Return what a factory made as one optimizer: a list or tuple of them is combined.

    The states that no weight owns, such as counters and rates, have one name in all optimizers;
    they get that of their optimizer put before.

    Raises:
        ArgumentTypeError: Something else than optimizers is in the list.
        ArgumentError: There is none, or a weight is in two.
    """
    if isinstance(made, (list, tuple)):
        made = CombinedOptimizer([optimizer for optimizer in made if optimizer is not None])
    if isinstance(made, nn.Cell) and hasattr(made, "parameters"):
        parts = parts_of(made)
        if len(parts) > 1 or isinstance(made, CombinedOptimizer):
            _name_apart(parts)
    return made


def _check(optimizers: Sequence[Any]) -> None:
    if not optimizers:
        raise ArgumentError("optimizer returned an empty list; return at least one optimizer")
    for optimizer in optimizers:
        if not isinstance(optimizer, nn.Cell) or not hasattr(optimizer, "parameters"):
            raise ArgumentTypeError(
                f"optimizer returned a list; return an optimizer of MindSpore, or several: a "
                f"{type(optimizer).__name__} is in the list"
            )
    first: dict[int, int] = {}
    for number, optimizer in enumerate(optimizers):
        for p in optimizer.parameters:
            if first.setdefault(id(p), number) != number:
                raise ArgumentError(
                    f"weight {p.name!r} is in optimizer {first[id(p)] + 1} and {number + 1} of "
                    f"{len(optimizers)}; give it to one"
                )


def _name_apart(optimizers: Sequence[nn.Cell]) -> None:
    weights = [p for optimizer in optimizers for p in optimizer.parameters]
    names = {str(p.name) for p in weights}
    kinds: dict[str, int] = {}
    for optimizer in optimizers:
        kind = type(core_of(optimizer)).__name__
        kinds[kind] = kinds.get(kind, 0) + 1
        label = kind if kinds[kind] == 1 else f"{kind}{kinds[kind]}"
        for state in own_parameters(optimizer, weights):
            if owner_of(str(state.name), names) is None:
                state.name = f"{label}.{state.name}"
