"""The train step: one compiled graph per stage, and no weight in it that is not meant to move."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from mindspore import Parameter, Tensor, nn

from msgrad._text import few
from msgrad.backend import latches, release_latches, saves_here
from msgrad.errors import ArgumentError
from msgrad.freezing import Record, active_dropout, note_moving
from msgrad.network import Pattern, Reach, inner_network, one_walk, refuse_lent
from msgrad.training._callback_params import CallbackParams
from msgrad.training._change_detection import ChangeDetector
from msgrad.training._loss import (
    check_arguments,
    check_gathering,
    check_inputs,
    checking_in_python,
    loss_network,
    raise_refusal,
    scaled,
)
from msgrad.training._rank_check import RankCheck
from msgrad.training._save import load_run, save_run
from msgrad.training._stage_cells import StageCells
from msgrad.training._trainable import NothingLeftError, Trainable
from msgrad.training._updates_in_step import as_updates, check_updates

logger = logging.getLogger("msgrad")
# looked up on the step alone: a `bprop` of the train cell would replace its differentiation
_NEVER_DELEGATED = ("bprop", "construct", "inner")


class Position(NamedTuple):
    """How far a run has come: steps called so far, and the epoch that a `Schedule` last named.

    Examples:
        >>> Position(step=120, epoch=3).epoch
        3
    """

    step: int
    epoch: int


class TrainStep(nn.Cell):
    """One training step over exactly what may move.

    What is frozen, cut off by a stop or never used leaves the optimizer, so that neither decay nor
    momentum can move it. A change of flags, stops or held behaviour is noticed at the next call:
    each stage has a train cell, an optimizer and a compiled graph of its own, made once and kept;
    optimizer state goes along by name.

    The counters of MindSpore's optimizers (``beta1_power``, ``state_step`` …) are shared by all
    weights. A weight that joins after n steps therefore takes its first Adam step at another length
    than in a fresh run: 0.48 of the rate after 10 steps, 2.5 times after 1,000.
    ``restart_counters=True`` puts them back at each stage change.

    Like every Cell of MindSpore the step is in evaluation mode until ``set_train()``;
    ``Model.train`` calls it.

    Args:
        network: A Cell that returns the scalar loss; with ``loss_fn`` a Cell that is called with
            all inputs but the labels; or a function of the inputs that returns the loss, with
            ``net``. A tuple, list or dict is refused where ``has_aux`` is not given.
        optimizer: Called with the list of parameters to train, and with what a `Stage` asks for by
            keyword, once for each new set; returns an optimizer over them, of ``nn``,
            ``mindspore.experimental.optim`` or ``mint.optim``, or a list of several, each over its
            own part; one with nothing to train is left out (None).
        loss_fn: Cell or function of the network's output and the labels, which are the last inputs:
            as many as it has to be given, mostly one.
        net: The Cell that holds the parameters, where ``network`` is a function.
        train_cell: Called with the loss network and the optimizer, returns the Cell that does a
            step.
        updates: Weight updates that run with each optimizer step: a `WeightUpdates`, a dict of
            rules (after the step), a `MovingAverage`, or a list of these.
        trainable: Patterns that narrow what this step trains; flags and behaviour stay as they are.
        clip_norm: Largest global norm of the gradients of the trained weights.
        clip_value: Largest size of an element of a gradient; it is clipped before the norm is.
        accumulate: Number of calls whose mean gradient makes one update of the optimizer. It is
            clipped as one. A stage that changes amid them drops what was gathered, and says so.
        loss_scale: What the loss is multiplied by, and its gradient divided by, for 16-bit
            gradients; an update that is not finite is left out. ``"dynamic"`` begins at 65,536,
            halves where one is left out and doubles after 1,000 updates, as
            ``mindspore.amp.DynamicLossScaler`` does.
        unreached: What to do with weights that no gradient can reach: ``"freeze"`` takes them out
            of the optimizer and names them once, ``"error"`` refuses, ``"allow"`` does not look.
            What the first batch decides in Python (``if mask is None``) counts for all batches.
        restart_state: A weight that is released again starts with fresh optimizer state.
        restart_counters: Shared counters of the optimizer start anew at each change of the stage;
            ``global_step``, which the schedule of a rate reads, goes on.
        keep_rows: A weight that takes the place of another of its name (a head that grows, a cell
            exchanged) keeps the optimizer state of the rows and columns that both have; it begins
            anew otherwise.
        has_aux: Whether network, function or ``loss_fn`` returns a tuple of the loss and more, as
            in ``mindspore.value_and_grad``: the gradient is that of the loss only, and the step
            returns all of it. A ``train_cell`` gets the tuple from its network.
        labels: How many of the last inputs are labels, where ``loss_fn`` does not tell.

    Attributes:
        optimizer: The optimizer of the present stage, as the callable returned it; several are one
            that has them as ``.optimizers``.

    Inputs:
        The inputs of the network, and the label where there is a ``loss_fn``.

    Outputs:
        What the train cell returns: the loss, a scalar Tensor; with ``has_aux`` a tuple of the loss
        and what else the network returns.

    Raises:
        ArgumentTypeError: ``optimizer`` is an optimizer instead of a callable, or another argument
            has a wrong type.
        ArgumentError: An argument has a value that cannot be used, nothing is left to train, the
            network does a step itself or returns no scalar loss, or the optimizer has other
            parameters than it was given.
        ConflictError: ``unreached="error"`` and a trainable weight gets no gradient.
        FrozenWeightError: An update is aimed at a frozen weight.

    Examples:
        >>> import numpy as np
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> def momentum(parameters):
        ...     return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.01)
        >>> step = mg.TrainStep(net, momentum, nn.MSELoss())
        >>> before = mg.Snapshot(net)
        >>> x, y = np.ones((2, 4), np.float32), np.zeros((2, 2), np.float32)
        >>> loss = step(Tensor(x), Tensor(y))
        >>> before.moved()
        ['2.weight', '2.bias']
        >>> step.compilations
        1
    """

    def __init__(
        self,
        network: nn.Cell | Callable[..., Tensor],
        optimizer: Callable[[list[Parameter]], Any],
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        net: nn.Cell | None = None,
        train_cell: Callable[[nn.Cell, nn.Cell], nn.Cell] | None = None,
        updates: object = None,
        trainable: Pattern | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        accumulate: int = 1,
        loss_scale: float | Literal["dynamic"] | None = None,
        unreached: str = "freeze",
        restart_state: bool = False,
        restart_counters: bool = False,
        keep_rows: bool = False,
        has_aux: bool = False,
        labels: int | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        check_arguments(optimizer, train_cell, clip_norm)
        check_gathering(clip_value, accumulate)
        with one_walk():
            self.network = loss_network(network, loss_fn, net, labels=labels, has_aux=has_aux)
            self.updates = nn.CellList(as_updates(self.network, updates), auto_prefix=False)
            own = self.__dict__  # beside the cells and parameters that MindSpore lists and saves
            own["_trainable"] = Trainable(self.network, trainable, unreached)
            own.update(_position=Position(0, 0), _loads=0, _renew=None, _has_run=False)
            own.update(_warned_of_dropout=False, _tells_of_graph=True)
            own.update(_changes=ChangeDetector(self.network), _callback_params=CallbackParams())
            own["_rank_check"] = RankCheck(inner_network(self.network))
            own["_engine"] = StageCells(
                self.network,
                optimizer,
                scaled(train_cell, loss_scale, has_aux=has_aux),
                updates=list(self.updates),
                clip_norm=clip_norm,
                clip_value=clip_value,
                accumulate=accumulate,
                restart_state=restart_state,
                restart_counters=restart_counters,
                keep_rows=keep_rows,
            )
            self._enter(None, runs=False)

    def __call__(self, *inputs: Any) -> Any:
        """Do one step; notice first what changed since the last one."""
        check_inputs(self.network, inputs)
        ran = self._has_run
        out = self.next_cell(*inputs)(*inputs) if ran else self._first_call(inputs)
        step, epoch = self._position
        self.__dict__["_position"] = Position(step + 1, epoch)
        return out

    def _first_call(self, inputs: Sequence[Any]) -> Any:
        """Do a step, and refuse before it moves anything what is not the loss that was promised."""
        try:
            inner = self.next_cell(*inputs)
            with checking_in_python(self.network, inner):
                out = inner(*inputs)
        except Exception as error:
            raise_refusal(error)
            raise
        self.__dict__["_has_run"] = True
        self._warn_of_shape(out)
        return out

    def prepare(self, *inputs: Any, runs: bool = False) -> None:
        """Go to the stage that the network asks for now, without waiting for the next call.

        Under a data sink the step itself is never called. With one batch given, before
        ``Model.train``, it finds there too what no gradient reaches.

        Args:
            *inputs: One batch, as the step is called with; nothing is run.
            runs: Whether an outer graph runs this stage from now on, so that it counts as used.

        Raises:
            ArgumentError: Nothing is left to train.
            ConflictError: ``unreached="error"`` and a trainable weight gets no gradient.
            FrozenWeightError: An update is aimed at a frozen weight.
        """
        if self._changes.changed() or not self._engine.settled:
            self._enter(inputs or None, runs=runs)
        elif runs:
            self._engine.run()

    def next_cell(self, *inputs: Any) -> nn.Cell:
        """Go to the stage of the next call, for those who call its train cell themselves.

        Args:
            *inputs: One batch, as the step is called with; nothing is run.

        Returns:
            The train cell that a call would call.

        Raises:
            ArgumentError: Nothing is left to train.
            ConflictError: ``unreached="error"`` and a trainable weight gets no gradient.
            FrozenWeightError: An update is aimed at a frozen weight.
        """
        self._refuse_lent("a step would take it for the weights")
        if self._changes.changed() or not self._engine.running:
            self._enter(inputs, runs=True)
        else:
            # to read the optimizer lets its rates follow a scheduler
            self._rank_check.compare_within(self.optimizer, self.inner, self._position.step)
        return self.inner

    def prepare_with(self, look: Callable[[], Reach], *inputs: Any) -> None:
        """Go to the stage of the next call, with a reach that the caller finds.

        Args:
            look: Finds what the gradient reaches.
            *inputs: One batch, as the step is called with; nothing is run.
        """
        self._changes.refresh()
        self._trainable.learn(self._changes.gradient_routes(), look())
        if self._changes.changed():
            self._enter(inputs, runs=True)

    def prepare_for_sink(self) -> str:
        """Go to the stage that a data sink runs next, for the callback that leads it.

        Returns:
            A phase for the cell around the step.
        """
        self._refuse_lent("a step would take it for the weights")
        # the callback that asks for this tells of each change
        self.tell_of_graph(False)
        self.prepare(runs=True)
        return f"train.stage{self._engine.number}"

    def count_steps(self, number: int) -> None:
        """Count steps that an outer graph did, which never calls the step.

        Args:
            number: How many steps.
        """
        done, epoch = self._position
        self.__dict__["_position"] = Position(done + number, epoch)

    @contextmanager
    def position_kept(self) -> Iterator[None]:
        """Put the position back after a block."""
        position = self._position
        try:
            yield
        finally:
            self.__dict__["_position"] = position

    def takes(self, record: Record) -> bool:
        """Say whether ``trainable=`` leaves a parameter to this step.

        Args:
            record: What is known of the parameter.

        Returns:
            True where it may train it.
        """
        return self._trainable.takes(record)

    @property
    def knows_reach(self) -> bool:
        """Whether it was found out, for the network as it stands, what a gradient reaches."""
        return self._trainable.knows(self._changes.gradient_routes())

    def ask_of_optimizer(self, settings: dict[str, Any], *, now: bool = True) -> None:
        """Let the optimizer of the next stage be made with other settings; a `Schedule` does so.

        Args:
            settings: ``lr``, and keywords that ``optimizer`` takes.
            now: Whether the next stage has them; else they are looked at only.

        Raises:
            ArgumentError: It does not take one of them.
        """
        self._engine.ask(settings, now=now)

    def led_by(self, renew: Callable[[], object]) -> None:
        """Let a schedule make its stage hold anew, whenever the stage of the step may change.

        Args:
            renew: Called then; it returns at once where no cell was exchanged.
        """
        self.__dict__["_renew"] = renew

    def set_epoch(self, epoch: int) -> None:
        """Note the epoch for ``position``; a `Schedule` does so.

        Args:
            epoch: Epochs done so far.
        """
        self.__dict__["_position"] = Position(self._position.step, epoch)

    @property
    def trainable(self) -> list[str]:
        """The names of the parameters that the optimizer holds now, in network order."""
        try:
            self.prepare()
        except NothingLeftError:
            return []
        return list(self._engine.current.names)

    @property
    def stages(self) -> list[list[str]]:
        """The trainable names of every stage so far, in the order of their first use."""
        return self._engine.names()

    @property
    def position(self) -> Position:
        """Steps called so far, and the epoch that a `Schedule` last named."""
        return self._position

    @property
    def loads(self) -> int:
        """How often a save was loaded, which tells a `Schedule` to make its stage hold anew."""
        return self._loads

    @property
    def compilations(self) -> int:
        """The number of step graphs compiled so far, new shapes included.

        In PYNATIVE_MODE it is 0. What is inside the graph of a data sink does not count.
        """
        return self._engine.compilations()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, optimizer state, claims, stage, position and seeds into one file.

        Where several ranks train together only rank 0 writes; the others return at once, so every
        rank may call it or rank 0 alone. The file is whole or not there. The hidden stream of an
        active ``nn.Dropout`` cannot be saved; a warning in the log says so.

        Args:
            path: File to write, an existing one is replaced in one move; missing folders are made.

        Raises:
            CheckpointError: The file cannot be written, or a rank holds a part of the state only.
        """
        self._refuse_lent("a save would take it for the weights")
        if not saves_here(self.network.get_parameters()):
            return
        self._warn_of_dropout("a resumed run draws other dropout masks")
        save_run(path, self._changes.records, self._engine, self._position)

    def load(self, path: str | os.PathLike[str]) -> Position:
        """Go on from what ``save`` wrote; where it does not fit, nothing is changed.

        Where several ranks train together each has to call it, all with the same file: it waits for
        all, so that none reads before rank 0 has written, and what one refuses, all refuse. Norm
        statistics, which each rank keeps for itself, and seeds are then those of rank 0 on all.

        Args:
            path: File that ``save`` wrote, from a step over the same network.

        Returns:
            The position that was saved, from which a `Schedule` or a loop goes on.

        Raises:
            CheckpointError: The file is missing, damaged, or of another network; all differences
                are listed. Or it trains a weight that a freeze or a flag of this script holds. Or
                another rank refuses it, or has another file.
        """
        self._refuse_lent("a load would be lost")
        position = load_run(
            path, self._changes.records, self._engine, lambda: self._enter(None, runs=False)
        )
        self.__dict__["_position"] = Position(*position)
        self.__dict__["_loads"] = self._loads + 1
        self._rank_check.forget()
        return self._position

    def tell_of_graph(self, tell: bool) -> None:
        """Say whether to warn of a graph around the step, which notices no later change.

        Args:
            tell: Whether it is to be told.
        """
        self.__dict__["_tells_of_graph"] = tell

    def construct(self, *inputs: Any) -> Any:
        # only an outer graph, such as that of a data sink, gets here
        if self.ready_for_graph:
            return self.inner(*inputs)
        return None

    def __getattr__(self, name: str) -> Any:
        if name == "ready_for_graph":
            # asked for in Python, when a graph around the step is compiled
            self._into_graph()
            return True
        inner = self.__dict__.get("inner")
        if name == "optimizer" and inner is not None:
            self._engine.carry.follow()
        if inner is None or name.startswith("_") or name in _NEVER_DELEGATED:
            return super().__getattr__(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        inner = self.__dict__.get("inner")
        own = name.startswith("_") or inner is None or name in self.__dict__ or name in self._cells
        if not own and not hasattr(type(self), name) and name in _attributes(inner):
            raise ArgumentError(
                f"attribute {name!r} is that of the train cell {type(inner).__name__}, of which "
                "each stage has its own; set it where train_cell= makes one, or, where it is a "
                "Parameter, write its value with ops.assign"
            )
        super().__setattr__(name, value)

    def parameters_and_names(
        self, name_prefix: str = "", expand: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """List weights and optimizer state, then what the train cell keeps of its own.

        So `ModelCheckpoint` and ``mindspore.save_checkpoint`` write what `save` does.

        Args:
            name_prefix: Put before each name.
            expand: Whether to list what is in cells of the step as well.

        Yields:
            Each parameter once, with its name.
        """
        listed = set()
        for name, parameter in super().parameters_and_names(name_prefix, expand):
            listed.add(id(parameter))
            yield name, parameter
        own = self._engine.current.keeping.state if expand and "inner" in self.__dict__ else {}
        for name, parameter in own.items():
            if id(parameter) not in listed:
                yield f"{name_prefix}.{name}" if name_prefix else name, parameter

    def _into_graph(self) -> None:
        if latches():
            # releasing a latch takes a gradient, which amid a compilation ends the process
            text = (
                "a TrainStep inside ms.jit does not notice a freeze in PYNATIVE_MODE of MindSpore "
                "before 2.8; call the step itself, or use GRAPH_MODE"
            )
            logger.error(text)  # of what is raised here MindSpore tells nothing
            raise ArgumentError(text)
        self.prepare(runs=True)
        if self._tells_of_graph:
            self.tell_of_graph(False)
            logger.warning(
                "a TrainStep is compiled into a graph around it, which notices no later freeze, "
                "stop or stage; call the step itself, or put a Schedule into ms.Model.train"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainStep:
        """Refuse to be copied: MindSpore's optimizers cannot be."""
        raise ArgumentError(
            "a TrainStep cannot be copied, since MindSpore's optimizers cannot; copy the network "
            "and make a step over it, and take the state along with .save and .load"
        )

    def set_inputs(self, *inputs: Any, **named: Any) -> None:
        """Say which dimensions of the inputs vary, so that one graph of a stage serves all sizes.

        Args:
            *inputs: A ``Tensor(shape=[None, 3], dtype=…)`` for each input of the step.
            **named: Not used, the inputs of a step have no names.

        Raises:
            ArgumentError: An input is given by name.
        """
        if named:
            raise ArgumentError(
                f"input {next(iter(named))!r} is given by name; give one Tensor per input, in order"
            )
        super().set_inputs(*inputs)
        self._engine.set_inputs(inputs)

    def set_train(self, mode: bool = True) -> TrainStep:
        """Set the mode of the step; a run of `Model.train` begins so and finds the optimizer.

        Args:
            mode: Whether the step trains.

        Returns:
            The step itself.
        """
        super().set_train(mode)
        self._callback_params.look(self)
        self._callback_params.show(self.optimizer)
        return self

    def set_grad(self, requires_grad: bool = True) -> TrainStep:
        """Refuse to be differentiated: the step takes the gradient itself.

        Args:
            requires_grad: Whether somebody else wants to.

        Returns:
            The step itself.

        Raises:
            ArgumentError: Somebody does.
        """
        if requires_grad:
            raise ArgumentError(
                "a TrainStep takes the gradient itself and is not put into a train cell; give "
                "ms.Model(step) no optimizer"
            )
        return self

    def _warn_of_shape(self, out: Any) -> None:
        loss: Any = out[0] if isinstance(out, (tuple, list)) and out else out
        if isinstance(loss, Tensor) and loss.size > 1:
            logger.warning(
                "the network returns %s and no scalar loss, so the gradient is that of the sum; "
                "give loss_fn=, or a network that returns the loss",
                tuple(loss.shape),
            )

    def _refuse_lent(self, what: str) -> None:
        refuse_lent((record.parameter for record in self._changes.records), what)

    def _warn_of_dropout(self, effect: str) -> None:
        active = [] if self._warned_of_dropout else active_dropout(inner_network(self.network))
        if active:
            self.__dict__["_warned_of_dropout"] = True
            logger.warning(
                "dropout is active in %s, and MindSpore keeps its stream hidden: %s",
                few(active),
                effect,
            )

    def _enter(self, inputs: Sequence[object] | None, *, runs: bool) -> None:
        """Go to the stage that the network asks for; without inputs the reach is not looked for."""
        watch = self._changes
        if self._renew is not None:
            self._renew()
        with one_walk():
            watch.refresh()
            compiled = self._engine.compilations()
            known = len(self._engine.names())
            with self._rank_check.refusing_together(runs=runs):
                weights = self._trainable.of(watch.records, watch.gradient_routes(), inputs)
                check_updates(self.updates)
                release_latches([r.parameter for r in watch.records if r.can_train], weights)
                around = (watch.stops(), watch.behaviour())
                stage = self._engine.enter(weights, around, runs=False)
        if runs:
            self._rank_check.compare(stage.names, stage.optimizer, stage.inner, self._position)
            self._engine.run()
            note_moving(self.network, weights)
        if compiled and len(self._engine.names()) > known:
            self._warn_of_dropout("the graph of a new stage begins with the same masks again")
        # not registered: the optimizers of several stages share the names of their states
        self.__dict__["inner"] = stage.inner
        self._cells["optimizer"] = stage.optimizer
        self._callback_params.show(stage.optimizer)
        if inputs is not None or self.knows_reach:
            watch.accept()


def _attributes(cell: nn.Cell) -> set[str]:
    return {*cell.__dict__, *cell._params, *cell._cells}
