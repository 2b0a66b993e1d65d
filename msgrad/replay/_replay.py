"""Replaying a frozen part: what cannot change is computed once for each sample, then read."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn
from mindspore import dataset as msdataset

from msgrad._text import few
from msgrad.errors import ArgumentError, ArgumentTypeError, ConflictError, ShapeError
from msgrad.freezing import claims_version
from msgrad.network import (
    Selection,
    copy_of,
    every_cell,
    fingerprint,
    inner_network,
    refuse_lent,
    writes,
)
from msgrad.replay._features import FrozenRows
from msgrad.replay._part import find_frozen_part
from msgrad.replay._samples import batches_of, check_dataset, keys_of, rows_of
from msgrad.replay._store import FeatureStore, RowKind
from msgrad.replay._taps import Tap
from msgrad.training import TrainStep

_LOOK_EVERY = 100
GIB = 2**30


def replay_frozen(
    step_or_net: nn.Cell,
    dataset: msdataset.Dataset,
    *,
    augmented: bool | None = None,
    max_bytes: int = 4 * GIB,
    folder: str | os.PathLike[str] | None = None,
) -> Replay:
    """Compute what the frozen part of a network makes of each sample once, and train from there.

    Exact: losses and trained weights have the bits of the plain run (a fresh graph against a fresh
    graph). A sample is known by the bits of its inputs and by the size of its batch, so that
    neither shuffling nor a last partial batch brings a wrong row, and a sample that is new is
    computed. The forward pass of the first batch is run a few times to prove that a row does not
    depend on its batch mates. `construct` need not be split: wrappers around the frozen cells give
    what was kept.

    Args:
        step_or_net: A `TrainStep`, another train cell, or a network, called as always.
        dataset: The batches that it is called with; iterated to build the store, not kept.
        augmented: False declares that a sample is the same in each epoch. A dataset with random
            augmentation would never find its samples again.
        max_bytes: Limit of what is kept, bytes; samples beyond it are computed each time.
        folder: Keep it in memory-mapped files there, for later processes too; each set of frozen
            weights has a folder of its own in it, which is gone on with where the first batch
            still has those rows. None keeps it in memory.

    Returns:
        The replay: call it as the step, or iterate over its `epoch()`; `close()` takes the
        wrappers out again.

    Raises:
        ArgumentError: ``augmented`` is not declared False or the dataset has a random operation,
            nothing is frozen that can be kept (each reason is named), or one sample is larger than
            ``max_bytes``.
        ArgumentTypeError: The step is no Cell, or the dataset is none of MindSpore's.
        ConflictError: A row depends on the other rows of its batch.

    Examples:
        >>> import numpy as np
        >>> from mindspore import dataset, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> step = mg.TrainStep(net, lambda p: nn.Adam(p, 0.01), nn.CrossEntropyLoss())
        >>> rows = np.random.RandomState(0).randn(8, 4).astype(np.float32)
        >>> labels = (rows[:, 0] > 0).astype(np.int32)
        >>> data = dataset.NumpySlicesDataset((rows, labels), shuffle=True).batch(4)
        >>> with mg.replay_frozen(step.set_train(), data, augmented=False) as replay:
        ...     print(replay.cells, replay.samples, len(list(replay.epoch())))
        ['1'] 8 2
    """
    _check(step_or_net, dataset, augmented)
    first = next(batches_of(dataset), None)
    if first is None:
        raise ArgumentError("dataset has no batch; give one that has")
    replay = Replay(step_or_net, dataset, first, max_bytes, folder)
    try:
        replay.build()
    except BaseException:
        replay.close()
        raise
    return replay


class Replay:
    """A step whose frozen part is read from a store; made by `replay_frozen`.

    Attributes:
        cells: Paths of the cells whose output is read instead of computed.
        refused: Paths of other frozen cells, and why their output cannot be kept.
        hits: Batches that were read so far.
        misses: Batches that had to be computed.

    Raises:
        ArgumentError: As in `replay_frozen`.
        ConflictError: As in `replay_frozen`.

    Examples:
        >>> import numpy as np
        >>> from mindspore import dataset, nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "0")
        >>> step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
        >>> rows = np.eye(4, dtype=np.float32), np.ones((4, 2), np.float32)
        >>> data = dataset.NumpySlicesDataset(rows, shuffle=False).batch(2)
        >>> with mg.replay_frozen(step, data, augmented=False) as replay:
        ...     losses = list(replay.epoch())
        ...     replay.hits, replay.misses
        (2, 0)
    """

    def __init__(
        self,
        step: nn.Cell,
        dataset: msdataset.Dataset,
        first: Sequence[Tensor],
        max_bytes: int,
        folder: str | os.PathLike[str] | None,
    ) -> None:
        self._step, self._dataset = step, dataset
        # a TrainStep and MindSpore's train cells name so what their inputs go to
        self._network = step.network if hasattr(step, "optimizer") else step
        refuse_lent(self._network.get_parameters(), "a replay would take it for the weights")
        self._store: FeatureStore | None = None
        self.hits = self.misses = self._calls = self._unproven = 0
        self._look_every = _LOOK_EVERY
        self._writes = writes()
        rows = rows_of(first)
        self._part = find_frozen_part(self._network, first, rows)
        try:
            self.refused = {_short(self, p): why for p, why in self._part.refused.items()}
            self.cells = [_short(self, p) for p, tap in self._part.taps.items() if tap.needed]
            if not self.cells:
                raise ArgumentError(f"no frozen part can be replayed; {_reasons(self.refused)}")
            self._check_updates()
            self._shapes = self._shapes_of(first)
            self._note_cells()
            self._rows = FrozenRows(self._part, rows)
            self._state, self._ends = self._rows.checksum(), self._rows.glance()
            self._version = claims_version()
            self._check_mates(first)
            self._store = self._open(max_bytes, folder)
            self._trust(first)
        except BaseException:
            self._part.close()
            raise

    # --- use

    def __call__(self, *inputs: Any) -> Any:
        """Do what the step does with these inputs, the frozen part read where it is known.

        Raises:
            ConflictError: A cell that is replayed was unfrozen, or a weight in it was changed.
        """
        refuse_lent(self._network.get_parameters(), "a replay would take it for the weights")
        self._check_shapes(inputs)
        keys = keys_of(inputs)
        known = self._kept.has(keys)
        # what is kept may outlive this replay: of other weights it must not be
        self._look(now=not known or writes() != self._writes)
        if known:
            self.hits += 1
            self._rows.put(self._kept.read(keys))
        else:
            self.misses += 1
            self._kept.add(keys, self._rows.compute(inputs))
        self._unproven += 1
        # what is written to the frozen part from now on is looked for at the next call
        self._writes = writes()
        step = self._step
        with self._rows.given(step.next_cell(*inputs) if isinstance(step, TrainStep) else step):
            return step(*inputs)

    def epoch(self) -> Iterator[Any]:
        """Run over the dataset once; yields what the step returns for each batch.

        Raises:
            ConflictError: A cell that is replayed was unfrozen, or a weight in it was changed.
        """
        self._look(now=True)
        for batch in batches_of(self._dataset):
            yield self(*batch)
        self._kept.flush()

    def build(self) -> None:
        """Compute the samples of the dataset that are not kept yet; nothing is trained."""
        self._look(now=True)
        for number, batch in enumerate(batches_of(self._dataset), 1):
            if self._kept.full:
                break
            self._check_shapes(batch)
            keys = keys_of(batch)
            if not self._kept.has(keys):
                self._kept.add(keys, self._rows.compute(batch))
            # once an epoch, where a loop of one's own calls batch by batch
            self._look_every = min(_LOOK_EVERY, number)
        self._kept.flush()

    def rebuild(self) -> None:
        """Forget what is kept, and compute it anew."""
        self._kept.clear()
        self.build()

    def close(self) -> None:
        """Take the wrappers out of the network, and let go of what is kept in memory.

        A warning says where a frozen weight has other bits than at the last look.
        """
        last = self._unproven
        self._part.close()
        if self._store is not None:
            self._store.close()
            self._store = None
            known = self._version == claims_version()  # else it may train since
            if last and known and self._rows.checksum() != self._state:
                warnings.warn(
                    "a weight in the frozen part was changed during the replay, or after it: the "
                    f"last {last} steps may have read what the weights before made",
                    stacklevel=2,
                )
        self._unproven = 0

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def samples(self) -> int:
        """The number of samples kept; one in batches of two sizes counts twice."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Bytes of what is kept."""
        return self._kept.bytes

    @property
    def _kept(self) -> FeatureStore:
        if self._store is None:
            raise ArgumentError("this replay is closed; make a new one with replay_frozen")
        return self._store

    # --- proof

    def _check_mates(self, first: Sequence[Tensor]) -> None:
        path = self._rows.mixed(first)
        if path is not None:
            raise ConflictError(
                f"cell {_short(self, path)!r} gives a sample other bits with other samples in its "
                "batch, or draws random numbers, so a replay would not be exact; freeze less, take "
                "dropout in front of it away, or train without a replay"
            )

    def _look(self, *, now: bool = False) -> None:
        """Refuse to go on where the frozen part is not what it was."""
        self._calls += 1
        now = now or self._calls % self._look_every == 0
        if self._version != claims_version() or now:
            free = self._part.still_frozen()
            if free:
                names = ", ".join(repr(_short(self, path)) for path in free[:3])
                raise ConflictError(
                    f"{names} changed since the replay began: not frozen any more; close() it "
                    "and train on, or begin a new one"
                )
            self._version = claims_version()
        self._check_whole(look=now)
        changed = self._rows.glance() != self._ends
        if now and not changed:
            changed = self._rows.checksum() != self._state
        if now or changed:
            self._unproven = 0
        if changed:
            raise ConflictError(
                "a weight in the frozen part has other bits than when the replay began; close() "
                "it and begin a new one"
            )

    def _check_whole(self, *, look: bool) -> None:
        """Refuse to go on where a cell was exchanged, or a tap taken out."""
        if not look and self._standing == self._children():
            return
        if not self._part.is_whole():
            raise ConflictError(
                "a cell was exchanged since the replay began, or taken out of its wrapper; close() "
                "it and begin a new one"
            )
        self._note_cells()

    def _note_cells(self) -> None:
        self._cells = [cell.__dict__["_cells"] for cell in every_cell(self._network)]
        self._standing = self._children()

    def _children(self) -> list[list[int]]:
        return [list(map(id, own.values())) for own in self._cells]

    def _check_shapes(self, inputs: Sequence[Any]) -> None:
        """Refuse samples of another size than the first, which the buffers are made for."""
        shapes = self._shapes_of(inputs)
        if shapes != self._shapes:
            raise ShapeError(
                f"samples have the shapes {_written(shapes)}, and the replay began with "
                f"{_written(self._shapes)}; give samples of one size, or each size a replay of its "
                "own"
            )

    def _shapes_of(self, inputs: Sequence[Any]) -> list[tuple[int, ...]]:
        count = len(inputs) - getattr(self._network, "labels", 0)
        return [value.shape[1:] for value in inputs[:count] if isinstance(value, Tensor)]

    def _check_updates(self) -> None:
        frozen = {str(p.name) for p in self._part.weights()}
        for update in getattr(self._step, "updates", ()):
            names = frozen & set(getattr(update, "names", ()))
            if names:
                raise ArgumentError(
                    f"no frozen part can be replayed; an update changes {min(names)!r}, which is "
                    "frozen: take the rule away"
                )

    def _open(self, max_bytes: int, folder: str | os.PathLike[str] | None) -> FeatureStore:
        kinds = [
            RowKind(tuple(tap.buffer.shape[1:]), copy_of(tap.buffer).dtype.str)
            for tap in self._part.needed
        ]
        where = Path(folder) / self._name() if folder is not None else None
        if max_bytes < (one := sum(kind.bytes for kind in kinds)):
            raise ArgumentError(
                f"max_bytes {max_bytes} holds no sample, one takes {one} bytes; give more"
            )
        return FeatureStore(kinds, max_bytes, where)

    def _trust(self, first: Sequence[Tensor]) -> None:
        """Forget the rows of an earlier process where the code made other ones of a batch then."""
        keys = keys_of(first)
        if not len(self._kept):
            return
        if not self._kept.holds(keys, self._rows.compute(first)):
            self._kept.clear()

    def _name(self) -> str:
        """Return a name that differs with the weights, the cells and where they run."""
        frozen = fingerprint(self._network, Selection(self._part.weights()))
        told = [ms.__version__, ms.get_context("device_target"), ms.get_context("mode"), frozen]
        told += [f"{p} {type(tap.cell).__qualname__}" for p, tap in self._part.taps.items()]
        return hashlib.sha256("|".join(map(str, told)).encode()).hexdigest()[:32]


def _short(replay: Replay, path: str) -> str:
    """Return a path as the user's network has it, without the loss cell around it."""
    inner = inner_network(replay._network)
    for name, cell in replay._network._cells.items():
        if cell is inner and path.startswith(f"{name}."):
            return path[len(name) + 1 :]
    return path


def _written(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(tuple(shape)) for shape in shapes)


def _reasons(refused: dict[str, str]) -> str:
    if not refused:
        return "no cell is wholly frozen: freeze some with mg.freeze"
    return few([f"{path!r}: {why}" for path, why in refused.items()], 3, "; ")


def _check(step: nn.Cell, dataset: object, augmented: bool | None) -> None:
    if not isinstance(step, nn.Cell):
        raise ArgumentTypeError(f"step_or_net is a {type(step).__name__}; give a Cell")
    if any(isinstance(cell, Tap) for cell in every_cell(step)):
        raise ArgumentError("step_or_net is replayed already; close() that replay first")
    if step.get_inputs() and ms.get_context("mode") == ms.GRAPH_MODE:
        raise ArgumentError(
            "step_or_net has inputs of any size by set_inputs, and a graph of a replay has one; "
            "make it without set_inputs"
        )
    check_dataset(dataset, augmented)
