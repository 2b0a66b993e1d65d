"""What the ranks of a run agree on before a stage runs: what it trains, holds and stops."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mindspore as ms
import numpy as np
from mindspore import ParallelMode, nn, ops

from msgrad.backend import all_have, compare, processes, ranks_together, refuse
from msgrad.errors import ConflictError, MsgradError
from msgrad.network import cell_paths, copy_of, every_cell
from msgrad.optim import HoldOptimizer, rates_of
from msgrad.wrappers import stops_of, wrapped

logger = logging.getLogger("msgrad")
_KEPT = ("moving_mean", "moving_variance")


class RankCheck:
    """What the ranks have agreed on, as one step sees it.

    They compare at the start, after a load and where the stage changes, and now and then what may
    change within a stage: a few bytes if all is equal. That one rank changes its stage and another
    does not is found by the first, which hears something else than an answer or nothing; the second
    waits in its gradients.
    """

    def __init__(self, network: nn.Cell) -> None:
        self._network = network
        self._agreed: str | None = None
        self._warned = False

    def forget(self) -> None:
        """Compare anew at the next step, weights too: after a load."""
        self._agreed = None

    @contextmanager
    def refusing_together(self, *, runs: bool) -> Iterator[None]:
        """Let the others hear of an error at the start, where they wait for this rank."""
        try:
            yield
        except MsgradError as error:
            # later the others may be anywhere, and waiting for them would hide the error
            if runs and self._agreed is None and ranks_together() > 1:
                refuse("the first stage", error)
            raise

    def compare(
        self, names: Sequence[str], optimizer: nn.Cell, inner: nn.Cell, position: Sequence[int]
    ) -> None:
        """Compare the stage that is about to run with that of the other ranks.

        Raises:
            ConflictError: Another rank has another one, or other weights at the start.
            DeviceError: Another rank is not about to change its stage.
        """
        count = ranks_together()
        if count == 1:
            self._warn_of_strangers()
            return
        stage = {"trains": list(names), **_around(self._network)}
        key = json.dumps(stage)
        if key == self._agreed:
            return
        # what may change within a stage would call for the others when they do not listen
        within = self._within(optimizer, inner, position[0])
        weights = _weights(self._network) if self._agreed is None else []
        compare("what they train", {**stage, **within, "weights": weights}, ConflictError)
        self._agreed = key
        self._warn(inner, count)

    def compare_within(self, optimizer: nn.Cell, inner: nn.Cell, step: int) -> None:
        """Compare holds, factors and rates at every tenth step, and at every hundredth later.

        Raises:
            ConflictError: Another rank has others.
            DeviceError: Another rank is doing something else.
        """
        if step and not step % (10 if step < 100 else 100) and ranks_together() > 1:
            facts = self._within(optimizer, inner, step)
            compare("what they hold and at which rates they train", facts, ConflictError)

    def _within(self, optimizer: nn.Cell, inner: nn.Cell, step: int) -> dict[str, list[str]]:
        return {
            "holds": _holds(inner),
            "factors": _factors(self._network),
            "step": [str(step)],
            "rates": _rates(optimizer),
        }

    def _warn(self, inner: nn.Cell, count: int) -> None:
        """Name what makes ranks part, or a resumed run another one, and may be meant so."""
        if ms.get_auto_parallel_context("parallel_mode") != ParallelMode.DATA_PARALLEL:
            return
        if not _reduces(inner):
            logger.warning(
                "train cell %s holds no nn.DistributedGradReducer, so each of %d ranks trains by "
                "itself and their weights part; reduce the gradients in it",
                type(inner).__name__,
                count,
            )
        kept = _kept_statistics(self._network)
        if kept and not all_have("statistics that are held", kept):
            logger.warning(
                "norm statistics that are held now differ between the ranks, each of which "
                "normalises with its own, and a save has those of rank 0; train with "
                "nn.SyncBatchNorm, or save and load before they are frozen",
            )

    def _warn_of_strangers(self) -> None:
        """Name the setting that is easily forgotten, without which no gradient is reduced."""
        if not self._warned and (count := processes()) > 1:
            self._warned = True
            logger.warning(
                "%d processes have joined, and parallel_mode 'stand_alone' lets each train by "
                "itself; call use_device(distributed=True) to train together",
                count,
            )


def _around(network: nn.Cell) -> dict[str, list[str]]:
    """Describe stops and behaviour by path, in words that are the same in every process."""
    cells = cell_paths(network)
    return {
        "stops": [f"{path or 'the network'} {' '.join(how)}" for path, *how in stops_of(network)],
        "in evaluation": [path or "the network" for path, cell in cells if not cell.training],
        "uses kept statistics": [
            path for path, cell in cells if getattr(cell, "use_batch_statistics", None) is False
        ],
    }


def _holds(inner: nn.Cell) -> list[str]:
    found = []
    for cell in every_cell(inner):
        if isinstance(cell, HoldOptimizer):
            found += cell.held
            found += [f"{name} rows {rows}" for name, rows in cell.held_rows.items()]
    return found


def _factors(network: nn.Cell) -> list[str]:
    return [
        f"{path} {layer.factor:.7g}" for path, layer in wrapped(network) if hasattr(layer, "factor")
    ]


def _rates(optimizer: nn.Cell) -> list[str]:
    rates = rates_of(optimizer).items()
    return [f"{name} {np.array2string(copy_of(rate), precision=7)}" for name, rate in rates]


def _weights(network: nn.Cell) -> list[str]:
    """Describe the bits of each weight that every rank must hold alike."""
    context = ms.get_auto_parallel_context
    if context("parallel_mode") != ParallelMode.DATA_PARALLEL or context("parameter_broadcast"):
        return []
    return [_bits(p) for p in network.get_parameters() if not p.layerwise_parallel]


def _kept_statistics(network: nn.Cell) -> list[str]:
    """Describe the bits of the statistics that norm layers use and do not change."""
    norms = [
        cell._params
        for cell in every_cell(network)
        if not cell.training or getattr(cell, "use_batch_statistics", None) is False
    ]
    found = [own[key] for own in norms for key in _KEPT if own.get(key) is not None]
    return [_bits(value) for value in found]


def _bits(value: ms.Parameter) -> str:
    values = np.ascontiguousarray(copy_of(value)).reshape(-1).view(np.uint8)
    # against accidents, and four times as fast as a hash that withstands intent
    return f"{value.name} {zlib.crc32(values.data):08x}"


def _reduces(cell: nn.Cell) -> bool:
    return any(
        isinstance(each, nn.DistributedGradReducer)
        or any(isinstance(value, ops.AllReduce) for value in each.__dict__.values())
        for each in every_cell(cell)
    )
