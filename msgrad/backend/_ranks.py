"""The processes that train one network together: in step with each other, or refused on all."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import mindspore as ms
import numpy as np
from mindspore import ParallelMode, Parameter, Tensor, communication, ops

from msgrad._text import few
from msgrad.backend._execution import computes
from msgrad.errors import CheckpointError, DeviceError, MsgradError

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
    "holds": "hold the same on every rank",
    "factors": "give the same scale on every rank",
    "step": "load the same save on every rank",
    "rates": "make the same optimizer on every rank",
    "weights": "set the same seed on every rank before the network is made, or load one checkpoint",
    "file": "give every rank the same file, from a folder that all servers share",
}


def processes() -> int:
    """Count the processes that have joined; 1 in a dry run, where no other answers."""
    if not communication.GlobalComm.INITED or not computes():
        return 1
    return communication.get_group_size()


def ranks_together() -> int:
    """Count the processes that train one network together; 1 where this one trains by itself.

    In MindSpore's mode "stand_alone" each trains for itself.
    """
    if processes() == 1 or _parallel("parallel_mode") == ParallelMode.STAND_ALONE:
        return 1
    return processes()


def saves_here(parameters: Iterable[Parameter] = ()) -> bool:
    """Say whether this process writes the save of a step: alone, or as rank 0.

    Args:
        parameters: What is to be saved; one that a graph has cut into slices is refused.

    Raises:
        CheckpointError: Each rank holds only a part of the weights or of the optimizer state.
    """
    cut = next((p.name for p in parameters if p.sliced), None)
    if cut is not None:
        raise CheckpointError(
            f"parameter {cut!r} is cut into slices, of which each rank has one; save with "
            "mindspore.save_checkpoint on every rank instead"
        )
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
    compare(what, {}, CheckpointError)
    try:
        result = attempt()
    except MsgradError as error:
        refuse(what, error)
        raise
    compare(what, facts(result), CheckpointError)
    return result


def refuse(what: str, error: MsgradError) -> None:
    """Tell the others, who wait to compare, that this rank fails."""
    # whatever the others say to it, this rank has an error of its own to raise
    with suppress(MsgradError):
        compare(what, {_REFUSES: [str(error)]}, type(error))


def compare(what: str, facts: _Facts, error: type[MsgradError]) -> None:
    """Compare what every rank says of itself; all have to call it at the same time.

    Raises:
        MsgradError: The facts of two ranks differ, of the kind of ``error`` and on every rank.
        DeviceError: Another rank is doing something else.
    """
    text = json.dumps({_ASKS: [what], **facts}).encode()
    heads = _heads(text)
    if (heads == heads[0]).all():
        return
    length = -(-int(heads[:, 1].max()) // 4) * 4
    # spaces behind JSON mean nothing
    texts = _gather(np.frombuffer(text.ljust(length), np.int32))
    raise error(_difference([json.loads(row.tobytes()) for row in texts]))


def all_have(what: str, facts: Sequence[str]) -> bool:
    """Say whether every rank says the same of itself; all have to call it at the same time."""
    heads = _heads(json.dumps([what, *facts]).encode())
    return bool((heads == heads[0]).all())


def of_rank_0(values: Sequence[float]) -> list[float]:
    """Return the numbers that rank 0 has, on every rank; all have to call it at the same time."""
    if not values or ranks_together() == 1:
        return list(values)
    own = np.array(values, np.float64).view(np.int32)
    return _gather(own)[0].copy().view(np.float64).tolist()


def _heads(text: bytes) -> np.ndarray:
    """Exchange eight numbers that stand for a text: that it is one, its length, its hash."""
    head = struct.pack("<2i", _MAGIC, len(text)) + hashlib.sha256(text).digest()[:24]
    heads = _gather(np.frombuffer(head, np.int32))
    apart = [rank for rank, row in enumerate(heads) if row[0] != _MAGIC]
    if apart:
        raise _not_in_step(f"rank {apart[0]} is doing something else")
    return heads


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
            parts.append(f"{label} {few(alone)}")
    return "; ".join(parts) or "nothing that the other does not have"


def _parallel(key: str) -> object:
    return ms.get_auto_parallel_context(key)
