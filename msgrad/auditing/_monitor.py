"""The weight monitor: how far each layer moves while a run goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mindspore import nn
from mindspore.train import Callback

from msgrad._extras import needed
from msgrad._files import as_json
from msgrad.auditing._distances import Distance, distances
from msgrad.auditing._monitor_plot import plot_records
from msgrad.auditing._record import LayerRecord
from msgrad.errors import ArgumentError
from msgrad.network import Pattern, every_cell, forget_compiled, places, select
from msgrad.optim import GradientRecorder, optimizers_in, put_back, put_instead
from msgrad.training import TrainStep


class GradientNorms:
    """Puts optimizers that note their gradients into a step, and takes them out again."""

    def __init__(self) -> None:
        # by the id of the optimizer, which its recorder keeps alive
        self._recorders: dict[int, GradientRecorder] = {}
        self._stood: list[tuple[nn.Cell, str, nn.Cell]] = []
        self._current: list[GradientRecorder] = []

    def attach(self, step: nn.Cell) -> None:
        """Note from now on; the step is compiled once more if it was compiled already."""
        root = step.inner if isinstance(step, TrainStep) else step
        found = optimizers_in(root)
        self._current = [o if isinstance(o, GradientRecorder) else self._of(o) for o in found]
        stood = put_instead(
            root, {id(o): recorder for o, recorder in zip(found, self._current, strict=True)}
        )
        if stood and any(cell.compile_cache for cell in every_cell(root)):
            forget_compiled(root)
        self._stood += stood

    def _of(self, optimizer: nn.Cell) -> GradientRecorder:
        if id(optimizer) not in self._recorders:
            self._recorders[id(optimizer)] = GradientRecorder(optimizer)
        return self._recorders[id(optimizer)]

    def detach(self) -> None:
        """Put the optimizers back; what is compiled goes on noting, which changes nothing."""
        put_back(self._stood)
        self._stood, self._current = [], []

    def norms(self) -> dict[int, float]:
        """Return the norms at the last step, by the ids of the weights; none before the first."""
        return {key: norm for r in self._current for key, norm in r.norms().items()}


class WeightMonitor(Callback):
    """Record, every so many steps, how far each layer moved, its gradient, and its update.

    In ``Model.train`` it is a callback; behind a `Schedule` in the list. In a loop of one's own,
    each step stands in ``with monitor.step(number):``, after ``monitor.attach(step)`` where the
    gradients are wanted.

    It keeps two copies of the weights, and a third during a step that it records; on the CPU in
    host memory, elsewhere on the device. For the gradients the optimizer of the step is wrapped
    while the run goes on, so that the compiled step also notes one norm for each gradient; a step
    that was compiled before is compiled once more. Under a data sink, which runs many steps in one
    call, the record is of the last of them and has no update.

    Args:
        net: Network to look at; it is not changed.
        *patterns: Which weights, see `select`; ``"*"`` for all, running statistics included.
        every: Steps between two records, 1 or more.
        gradients: Whether to note the norms of gradients.
        tensorboard: Folder for scalars that TensorBoard shows; None writes none.

    Raises:
        NoMatchError: A pattern selects nothing.
        ArgumentError: No pattern, or ``every`` is no positive number of steps.
        MissingPackageError: ``tensorboard`` is given and the package is not installed.

    Examples:
        >>> import numpy as np
        >>> from mindspore import Tensor, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss())
        >>> monitor = mg.WeightMonitor(net, "*", every=1)
        >>> with monitor.step(1):
        ...     _ = step(Tensor(np.ones((2, 4), np.float32)), Tensor(np.ones((2, 2), np.float32)))
        >>> [(record.layer, record.since_start > 0) for record in monitor.records]
        [('0', False), ('2', True)]
    """

    def __init__(
        self,
        net: nn.Cell,
        *patterns: Pattern,
        every: int = 100,
        gradients: bool = True,
        tensorboard: str | Path | None = None,
    ) -> None:
        super().__init__()
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ArgumentError(f"every {every!r} is no number of steps; give 1 or more")
        self.every = every
        self.records: list[LayerRecord] = []
        self._weights = list(select(net, *patterns))
        self._layers = _layers(net, [id(p) for p in self._weights])
        self._distances = distances(self._weights)
        self._norms = GradientNorms() if gradients else None
        self._writer: Any = None
        if tensorboard is not None:
            module = needed("tensorboard.summary", "tensorboard=", "tensorboard")
            self._writer = module.Writer(str(tensorboard))

    def attach(self, step: nn.Cell) -> None:
        """Note the gradients of a step from now on.

        Args:
            step: A `TrainStep` or a train cell; where there is no optimizer in it, no gradient is
                recorded.
        """
        if self._norms is not None:
            self._norms.attach(step)

    def detach(self) -> None:
        """Give the step its optimizer back."""
        if self._norms is not None:
            self._norms.detach()

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Look at one step, in a loop of one's own; it is recorded where it is its turn.

        Args:
            number: The number of the step, from 1.

        Yields:
            Nothing; do the step inside.
        """
        due = number % self.every == 0
        if due:
            self._distances.keep()
        yield
        if due:
            self.record(number)

    def record(self, number: int) -> list[LayerRecord]:
        """Record how far each layer is now, whether it is its turn or not.

        Args:
            number: The number of the step.

        Returns:
            What was recorded, in network order.
        """
        found = self._distances.measure()
        norms = self._norms.norms() if self._norms is not None else {}
        gradients = [norms.get(id(p)) for p in self._weights]
        fresh = [
            _record(number, layer, [found[i] for i in inside], [gradients[i] for i in inside])
            for layer, inside in self._layers.items()
        ]
        self.records += fresh
        self._write(fresh)
        return fresh

    def _write(self, fresh: Sequence[LayerRecord]) -> None:
        if self._writer is None:
            return
        for record in fresh:
            for name, value in _figures(record).items():
                if value is not None:
                    self._writer.add_scalar(f"{name}/{record.layer}", value, record.step)
        self._writer.flush()

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the records as JSON, and write them to a file where a path is given.

        JSON has no NaN and no infinity: they become the strings "nan" and "inf".

        Args:
            path: File to write; its folder is made.

        Returns:
            The JSON text.
        """
        records = [{**asdict(record), "ratio": record.ratio} for record in self.records]
        return as_json({"every": self.every, "records": records}, path)

    def plot(self, path: str | Path) -> None:
        """Draw change, update-to-weight ratio and gradient of each layer over the steps.

        Args:
            path: File to write, ``.png`` or ``.svg``; its folder is made.

        Raises:
            ArgumentError: The file has another ending, or nothing was recorded.
            MissingPackageError: matplotlib is not installed.
        """
        plot_records(self.records, path)

    def on_train_begin(self, run_context: Any) -> None:
        """Note the gradients of the train network from now on."""
        self.attach(run_context.original_args().train_network)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Keep the weights as they are before a step that will be recorded."""
        params = run_context.original_args()
        if params.dataset_sink_mode:
            return
        step = params.train_network
        if isinstance(step, TrainStep) and self._norms is not None:
            # the stage of this step, before it is compiled
            step.prepare(*params.train_dataset_element)
            self.attach(step)
        if params.cur_step_num % self.every == 0:
            self._distances.keep()

    def on_train_step_end(self, run_context: Any) -> None:
        """Record the step where it is its turn."""
        params = run_context.original_args()
        done = params.dataset_helper.sink_size() if params.dataset_sink_mode else 1
        if params.cur_step_num % self.every < done:
            self.record(params.cur_step_num)

    def on_train_end(self, run_context: Any) -> None:
        """Give the train network its optimizer back."""
        self.detach()


def _layers(net: nn.Cell, weights: Sequence[int]) -> dict[str, list[int]]:
    """Return the positions of the weights that each cell owns, in network order."""
    position = {key: number for number, key in enumerate(weights)}
    layers: dict[str, list[int]] = {}
    for place in places(net):
        # a tied weight counts at its first place
        number = position.pop(id(place.parameter), None)
        if number is not None:
            layers.setdefault(place.path.rpartition(".")[0] or place.path, []).append(number)
    return layers


def _record(
    step: int, layer: str, found: Sequence[Distance], gradients: Sequence[float | None]
) -> LayerRecord:
    updates = [distance.update for distance in found if distance.update is not None]
    known = [gradient for gradient in gradients if gradient is not None]
    return LayerRecord(
        step,
        layer,
        math.hypot(*(distance.since_start for distance in found)),
        math.hypot(*(distance.since_last for distance in found)),
        math.hypot(*updates) if updates else None,
        math.hypot(*(distance.weight for distance in found)),
        math.hypot(*known) if known else None,
    )


def _figures(record: LayerRecord) -> dict[str, float | None]:
    return {
        "change since start": record.since_start,
        "change since last": record.since_last,
        "update to weight": record.ratio,
        "gradient": record.gradient,
    }
