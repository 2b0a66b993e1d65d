"""The train step: one compiled graph per stage, and no weight in it that is not meant to move."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mindspore import Parameter, Tensor, nn

from msgrad._agreement import Agreement
from msgrad._arguments import check_arguments
from msgrad._dropout import active_dropout
from msgrad._latch import release_latches
from msgrad._loss import check_inputs, loss_network
from msgrad._moving import note_moving
from msgrad._ranks import saves_here
from msgrad._resume import load_run, save_run
from msgrad._select import Pattern
from msgrad._stages import Stages
from msgrad._step_cell import StepCell
from msgrad._summary import inner_network
from msgrad._trainable import NothingLeftError, Trainable, few
from msgrad._updating import as_updates, check_updates
from msgrad._watch import Watch

logger = logging.getLogger("msgrad")


class Position(NamedTuple):
    """How far a run has come: steps called so far, and the epoch that a `Schedule` last named."""

    step: int
    epoch: int


class TrainStep(StepCell):
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
            all inputs but the last; or a function of the inputs that returns the loss, with
            ``net``.
        optimizer: Called with the list of parameters to train, once for each new set; returns an
            optimizer over them, of ``nn``, ``mindspore.experimental.optim`` or ``mint.optim``.
        loss_fn: Cell or function of the network's output and the last input.
        net: The Cell that holds the parameters, where ``network`` is a function.
        train_cell: Called with the loss network and the optimizer, returns the Cell that does a
            step.
        updates: Weight updates that run with each optimizer step: a `WeightUpdates`, a dict of
            rules (after the step), a `MovingAverage`, or a list of these.
        trainable: Patterns that narrow what this step trains; flags and behaviour stay as they are.
        clip_norm: Largest global norm of the gradients of the trained weights.
        unreached: What to do with weights that no gradient can reach: ``"freeze"`` takes them out
            of the optimizer and names them once, ``"error"`` refuses, ``"allow"`` does not look.
            What the first batch decides in Python (``if mask is None``) counts for all batches.
        restart_state: A weight that is released again starts with fresh optimizer state.
        restart_counters: Shared counters of the optimizer start anew at each change of the stage;
            ``global_step``, which the schedule of a rate reads, goes on.

    Attributes:
        optimizer: The optimizer of the present stage, as the callable returned it.

    Inputs:
        The inputs of the network, and the label where there is a ``loss_fn``.

    Outputs:
        What the train cell returns: the loss, a scalar Tensor.

    Raises:
        ArgumentTypeError: ``optimizer`` is an optimizer instead of a callable, or another argument
            has a wrong type.
        ArgumentError: An argument has a value that cannot be used, nothing is left to train, or the
            optimizer has other parameters than it was given.
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
        optimizer: Callable[[list[Parameter]], nn.Cell],
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        net: nn.Cell | None = None,
        train_cell: Callable[[nn.Cell, nn.Cell], nn.Cell] | None = None,
        updates: object = None,
        trainable: Pattern | None = None,
        clip_norm: float | None = None,
        unreached: str = "freeze",
        restart_state: bool = False,
        restart_counters: bool = False,
    ) -> None:
        super().__init__()
        check_arguments(optimizer, train_cell, clip_norm)
        self.network = loss_network(network, loss_fn, net)
        self.updates = nn.CellList(as_updates(self.network, updates), auto_prefix=False)
        own = self.__dict__  # beside the cells and parameters that MindSpore lists and saves
        own["_trainable"] = Trainable(self.network, trainable, unreached)
        own["_position"] = Position(0, 0)
        own["_warned_of_dropout"] = False
        own["_watch"] = Watch(self.network)
        own["_agreement"] = Agreement(inner_network(self.network))
        own["_engine"] = Stages(
            self.network,
            optimizer,
            train_cell,
            updates=list(self.updates),
            clip_norm=clip_norm,
            restart_state=restart_state,
            restart_counters=restart_counters,
        )
        self._enter(None, runs=False)

    def __call__(self, *inputs: Any) -> Any:
        """Do one step; notice first what changed since the last one."""
        check_inputs(self.network, inputs)
        out = enter_next(self, inputs)(*inputs)
        if not self._position.step:
            self._warn_of_shape(out)
        step, epoch = self._position
        self.__dict__["_position"] = Position(step + 1, epoch)
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
        if self._watch.changed():
            self._enter(inputs or None, runs=runs)
        elif runs:
            self._engine.run()

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
        if not saves_here():
            return
        self._warn_of_dropout("a resumed run draws other dropout masks")
        save_run(path, self._watch.records, self._engine, self._position)

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
                are listed. Or another rank refuses it, or has another file.
        """
        position = load_run(
            path, self._watch.records, self._engine, lambda: self._enter(None, runs=False)
        )
        self.__dict__["_position"] = Position(*position)
        self._agreement.forget()
        return self._position

    def _warn_of_shape(self, out: Any) -> None:
        if isinstance(out, Tensor) and out.size > 1:
            logger.warning(
                "the network returns %s and no scalar loss, so the gradient is that of the sum; "
                "give loss_fn=, or a network that returns the loss",
                tuple(out.shape),
            )

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
        watch = self._watch
        watch.settle()
        compiled = self._engine.compilations()
        known = len(self._engine.names())
        with self._agreement.refusing_together(runs=runs):
            weights = self._trainable.of(watch.records, watch.routes(), inputs)
            check_updates(self.updates)
            release_latches([r.parameter for r in watch.records if r.can_train], weights)
            around = (watch.stops(), watch.behaviour())
            stage = self._engine.enter(weights, around, runs=False)
        if runs:
            self._agreement.reach(stage.names, stage.optimizer, stage.inner, self._position)
            self._engine.run()
            note_moving(self.network, weights)
        if compiled and len(self._engine.names()) > known:
            self._warn_of_dropout("the graph of a new stage begins with the same masks again")
        # not registered: the optimizers of several stages share the names of their states
        self.__dict__["inner"] = stage.inner
        self._cells["optimizer"] = stage.optimizer
        if inputs is not None or self._trainable.knows(watch.routes()):
            watch.know()


def enter_next(step: TrainStep, inputs: Sequence[object]) -> nn.Cell:
    """Bring a step to the stage of its next call; return the train cell that it calls."""
    if step._watch.changed() or not step._engine.running:
        step._enter(inputs, runs=True)
    return step.inner
