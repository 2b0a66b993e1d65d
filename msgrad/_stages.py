"""The stages of a step: for each a train cell of its own, made once, entered with the state of the last one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from mindspore import Parameter, nn

from msgrad._carry import Carry, Keeping
from msgrad._errors import ArgumentError, ArgumentTypeError
from msgrad._optimizer import ClippedOptimizer


@dataclass(frozen=True)
class StageOfStep:
    """What one stage trains, its optimizer as the user made it, and the train cell that does a step."""

    names: list[str]
    optimizer: nn.Cell
    inner: nn.Cell
    keeping: Keeping


class Stages:
    """Makes, keeps and enters the stages of one network; stages that train the same set share an optimizer."""

    def __init__(
        self,
        network: nn.Cell,
        make_optimizer: Callable[[list[Parameter]], nn.Cell],
        train_cell: Callable[[nn.Cell, nn.Cell], nn.Cell],
        *,
        clip_norm: float | None,
        restart_state: bool,
        restart_counters: bool,
    ) -> None:
        self._network = network
        self._make_optimizer = make_optimizer
        self._train_cell = train_cell
        self._clip_norm = clip_norm
        self._restart_state = restart_state
        self._restart_counters = restart_counters
        self._known: dict[Hashable, StageOfStep] = {}
        self._optimizers: dict[Hashable, nn.Cell] = {}
        self.carry = Carry()
        self._current: StageOfStep | None = None

    @property
    def current(self) -> StageOfStep:
        """The stage entered last."""
        assert self._current is not None
        return self._current

    def names(self) -> list[list[str]]:
        """List what each stage trains, in the order of first use."""
        return [list(names) for names in dict.fromkeys(tuple(s.names) for s in self._known.values())]

    def compilations(self) -> int:
        """Count the compiled graphs of all stages."""
        return sum(len(stage.inner.compile_cache) for stage in self._known.values())

    def enter(self, weights: Sequence[Parameter], around: Hashable) -> StageOfStep:
        """Go to the stage that trains these weights with this behaviour around them; all or nothing."""
        key = (tuple(map(id, weights)), around)
        old, new = self._current, self._known.get(key)
        if new is None:
            new = self._make(key, weights)
        if new is not old:
            if old is not None:
                self.carry.leave(old.keeping)
            before = set(old.names) if old is not None else set()
            joined = [n for n in new.names if n not in before] if self._restart_state else ()
            self.carry.enter(new.keeping, old.keeping if old is not None else None, fresh=joined)
            if joined:
                new.keeping.restart_state(joined)
            if old is not None and old.names != new.names and self._restart_counters:
                new.keeping.restart_counters()
            self._current = new
        return new

    def _make(self, key: tuple[Hashable, Hashable], weights: Sequence[Parameter]) -> StageOfStep:
        old = self._current.keeping if self._current is not None else None
        optimizer = self._optimizers.get(key[0])
        if optimizer is None:
            optimizer = self._make_optimizer(list(weights))
            _check_optimizer(optimizer, weights)
            self.carry.meet(optimizer, old)
        wrapped = optimizer if self._clip_norm is None else ClippedOptimizer(optimizer, self._clip_norm)
        inner = self._train_cell(self._network, wrapped)
        if not isinstance(inner, nn.Cell):
            raise ArgumentTypeError(f"train_cell returned a {type(inner).__name__}; return a Cell that does one step")
        inner.add_flags(training=self._network.training)
        keeping = Keeping(inner, optimizer, self._network, slots=self._restart_state)
        stage = StageOfStep([p.name for p in weights], optimizer, inner, keeping)
        self._optimizers[key[0]] = optimizer
        self._known[key] = stage
        return stage


def _check_optimizer(optimizer: object, weights: Sequence[Parameter]) -> None:
    if not isinstance(optimizer, nn.Cell) or not hasattr(optimizer, "parameters"):
        raise ArgumentTypeError(f"optimizer returned a {type(optimizer).__name__}; return an optimizer of MindSpore")
    if {id(p) for p in optimizer.parameters} != {id(p) for p in weights}:
        given, got = [p.name for p in weights], [p.name for p in optimizer.parameters]
        raise ArgumentError(
            "optimizer holds other parameters than it was given; pass on the list that it is called with\n"
            f"given: {_list(given)}\nholds: {_list(got)}"
        )


def _list(names: Sequence[str]) -> str:
    return f"{len(names)}: " + ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
