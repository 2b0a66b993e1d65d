"""The processes that train one network together: in step with each other, or refused on all."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import mindspore as ms
import numpy as np
from mindspore import ParallelMode, Tensor, communication, nn, ops

from msgrad._device import DRY_RUN
from msgrad._errors import CheckpointError, ConflictError, DeviceError, MsgradError
from msgrad._paths import cell_paths
from msgrad._slots import rates_of
from msgrad._weights import copy_of
from msgrad._wrap import stops_of

logger = logging.getLogger("msgrad")
_T = TypeVar("_T")
_Facts = Mapping[str, Sequence[str]]

# What comes from a rank that is doing something else does not begin with it.
_MAGIC = 0x6D736772
_ASKS, _REFUSES = "asks about", "refuses"
_REMEDIES = {
    _ASKS: "load, and change the stage, at the same step on every rank",
    "trains": "freeze the same on every rank before the step",
    "stops": "stop and scale the same on every rank before the step",
    "in evaluation": "freeze the same on every rank, and call set_train on all or on none",
    "uses kept statistics": "freeze the same on every rank before the step",
    "step": "load the same save on every rank",
    "rates": "make the same optimizer on every rank",
    "weights": "set the same seed on every rank before the network is made, or load one checkpoint",
    "file": "give every rank the same file, from a folder that all servers share",
}


def ranks_together() -> int:
    """Count the processes that train one network together; 1 where this one trains by itself.

    In a dry run no other rank answers. In MindSpore's mode "stand_alone" each trains for itself.
    """
    if not communication.GlobalComm.INITED or os.environ.get(DRY_RUN):
        return 1
    if _parallel("parallel_mode") == ParallelMode.STAND_ALONE:
        return 1
    return communication.get_group_size()


def saves_here() -> bool:
    """Say whether this process writes the save of a step: alone, or as rank 0.

    Raises:
        CheckpointError: Each rank holds only a part of the weights or of the optimizer state.
    """
    if ranks_together() == 1:
        return True
    mode = _parallel("parallel_mode")
    sharded = mode in (ParallelMode.SEMI_AUTO_PARALLEL, ParallelMode.AUTO_PARALLEL)
    if sharded or _parallel("enable_parallel_optimizer"):
        why = f"parallel_mode {mode!r}" if sharded else "enable_parallel_optimizer"
        raise CheckpointError(
            f"{why} may leave each rank a part of the weights or states only; save with "
            "mindspore.save_checkpoint on every rank instead"
        )
    return communication.get_rank() == 0


def alike(what: str, attempt: Callable[[], _T], facts: Callable[[_T], _Facts]) -> _T:
    """Read something on every rank; where one fails, or has other facts, it is refused on all.

    It begins with a wait for all ranks, so that what rank 0 wrote before is there for the others.

    Raises:
        CheckpointError: Another rank failed, or has other facts.
    """
    if ranks_together() == 1:
        return attempt()
    _compare(what, {}, CheckpointError)
    try:
        result = attempt()
    except MsgradError as error:
        _refuse(what, error)
        raise
    _compare(what, facts(result), CheckpointError)
    return result


class Ranks:
    """What the ranks have agreed on, as one step sees it.

    They compare at the start, after a load and where the stage changes, never at each step: a few
    bytes if all is equal. That one rank changes its stage and another does not is found by the
    first, which hears something else than an answer or nothing; the second waits in its gradients.
    """

    def __init__(self, network: nn.Cell) -> None:
        self._network = network
        self._agreed: Hashable = None
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
                _refuse("the first stage", error)
            raise

    def agree(
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
        weights = _weights(self._network) if self._agreed is None else []
        rest = {"step": [str(position[0])], "rates": _rates(optimizer), "weights": weights}
        _compare("what they train", {**stage, **rest}, ConflictError)
        self._agreed = key
        if _parallel("parallel_mode") == ParallelMode.DATA_PARALLEL and not _reduces(inner):
            logger.warning(
                "train cell %s holds no nn.DistributedGradReducer, so each of %d ranks trains by "
                "itself and their weights part; reduce the gradients in it",
                type(inner).__name__,
                count,
            )

    def _warn_of_strangers(self) -> None:
        """Name the setting that is easily forgotten, without which no gradient is reduced."""
        if self._warned or not communication.GlobalComm.INITED or os.environ.get(DRY_RUN):
            return
        self._warned = True
        if communication.get_group_size() > 1:
            logger.warning(
                "%d processes have joined, and parallel_mode 'stand_alone' lets each train by "
                "itself; call use_device(distributed=True) to train together",
                communication.get_group_size(),
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


def _rates(optimizer: nn.Cell) -> list[str]:
    rates = rates_of(optimizer).items()
    return [f"{name} {np.array2string(copy_of(rate), precision=7)}" for name, rate in rates]


def _weights(network: nn.Cell) -> list[str]:
    """Describe the bits of each weight that every rank must hold alike."""
    if _parallel("parallel_mode") != ParallelMode.DATA_PARALLEL or _parallel("parameter_broadcast"):
        return []
    return [
        f"{p.name} {hashlib.blake2b(copy_of(p).tobytes(), digest_size=8).hexdigest()}"
        for p in network.get_parameters()
        if not p.layerwise_parallel
    ]


def _reduces(cell: nn.Cell) -> bool:
    cells = [each for _, each in cell.cells_and_names()]
    return any(
        isinstance(each, nn.DistributedGradReducer)
        or any(isinstance(value, ops.AllReduce) for value in each.__dict__.values())
        for each in cells
    )


def _refuse(what: str, error: MsgradError) -> None:
    # whatever the others say to it, this rank has an error of its own to raise
    with suppress(MsgradError):
        _compare(what, {_REFUSES: [str(error)]}, type(error))


def _compare(what: str, facts: _Facts, error: type[MsgradError]) -> None:
    """Raise on every rank where the facts of two ranks differ."""
    facts = {_ASKS: [what], **facts}
    text = json.dumps(facts).encode()
    head = struct.pack("<2i", _MAGIC, len(text)) + hashlib.sha256(text).digest()[:24]
    heads = _gather(np.frombuffer(head, np.int32))
    apart = [rank for rank, row in enumerate(heads) if row[0] != _MAGIC]
    if apart:
        raise _not_in_step(f"rank {apart[0]} is doing something else")
    if (heads == heads[0]).all():
        return
    length = -(-int(heads[:, 1].max()) // 4) * 4
    # spaces behind JSON mean nothing
    texts = _gather(np.frombuffer(text.ljust(length), np.int32))
    raise error(_difference([json.loads(row.tobytes()) for row in texts]))


def _gather(values: np.ndarray) -> np.ndarray:
    """Return the integers of every rank, a row for each."""
    try:
        rows = ops.AllGather()(Tensor(values)).asnumpy()
    except RuntimeError as error:
        raise _not_in_step("no answer came") from error
    return rows.reshape(-1, len(values))


def _not_in_step(fact: str) -> DeviceError:
    return DeviceError(
        f"rank {communication.get_rank()} waits for the others to compare, and {fact}; change the "
        "stage at the same step on every rank, and load on every rank"
    )


def _difference(facts: Sequence[_Facts]) -> str:
    """Say in which facts two ranks differ: rank 0, and the first that has others."""
    refusals = [(rank, own[_REFUSES][0]) for rank, own in enumerate(facts) if _REFUSES in own]
    if refusals:
        return "rank {} refuses, so all ranks do: {}".format(*refusals[0])
    first = facts[0]
    number = next(rank for rank, own in enumerate(facts) if own != first)
    other = facts[number]
    labels = [label for label in first if first[label] != other.get(label)]
    if "trains" in labels and "rates" in labels:
        labels.remove("rates")  # it follows
    return (
        f"ranks 0 and {number} differ in {first[_ASKS][0]}; {_REMEDIES[labels[0]]}\n"
        f"rank 0: {_besides(labels, first, other)}\n"
        f"rank {number}: {_besides(labels, other, first)}"
    )


def _besides(labels: Sequence[str], ours: _Facts, theirs: _Facts) -> str:
    """Write what one rank has and the other does not."""
    parts = []
    for label in labels:
        own, known = ours.get(label, []), set(theirs.get(label, []))
        alone = [item for item in own if item not in known]
        if not alone and len(own) == len(known):
            alone = own  # the same in another order
        if alone:
            more = f" and {len(alone) - 5} more" if len(alone) > 5 else ""
            parts.append(f"{label} {', '.join(alone[:5])}{more}")
    return "; ".join(parts) or "nothing that the other does not have"


def _parallel(key: str) -> object:
    return ms.get_auto_parallel_context(key)
