"""Saving the part of a network that may have moved, with a file beside it that says what it is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from mindspore import Parameter, nn
from mindspore import dtype as mstype
from mindspore.experimental import optim

from msgrad.backend import saves_here
from msgrad.checkpoints._files import write_values
from msgrad.checkpoints._side_file import describe
from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import may_have_moved
from msgrad.network import every_cell, paths_of

# The names of adapters, and what PEFT puts before those of a network.
ADAPTER, PEFT = re.compile(r"(^|\.)lora_[AB]\.weight$"), "base_model.model."
_OPTIMIZERS = (nn.Optimizer, optim.Optimizer)


def save_trainable(net: nn.Cell, path: str | os.PathLike[str], *, plan: object = None) -> list[str]:
    """Save all that may have moved, and nothing else.

    That is what may train now, what trained in a `TrainStep` or was changed by an update in this
    run before it was frozen again, and running statistics that no freeze holds. Everything else is
    the base, on which `load_weights` puts it again. What cells of yours write themselves in the
    forward pass (a queue, a counter) is saved too.

    Where all of it is weights of `LoRA` wrappers, the file has the names of PEFT
    (``base_model.model.<path>.lora_A.weight``), which PEFT, mindone and `load_weights` read.

    The weights stand in a checkpoint that MindSpore can load as well. Beside it, under the same
    name with ``.msgrad.json`` behind it, stands what is in it, the plan, and a fingerprint of the
    base, so that it loads onto the same base only. Each of the two files is whole or not there, and
    a pair of which one was replaced is refused. Where several ranks train together only rank 0
    writes, so every rank may call it or rank 0 alone.

    Args:
        net: Network to save from; it is not changed.
        path: File to write, ending in ``.ckpt`` or ``.safetensors``; missing folders are made.
        plan: What `to_dict` is asked of, such as a `Plan`, to stand in the side file.

    Returns:
        The names that were saved, in network order.

    Raises:
        ArgumentTypeError: ``net`` is no Cell or holds an optimizer, or ``plan`` has no `to_dict`.
        ArgumentError: The path has another ending, nothing may have moved, or the plan cannot be
            written as JSON.
        ConflictError: Two parameters have one name.
        CheckpointError: A file cannot be written, or a rank holds a part of the weights only.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> ms.save_checkpoint(net, "base.ckpt")
        >>> _ = mg.freeze(net, "0")
        >>> mg.save_trainable(net, "head.ckpt")
        ['2.weight', '2.bias']
        >>> again = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.load_weights(again, "base.ckpt")
        >>> mg.load_weights(again, "head.ckpt").loaded
        ('2.weight', '2.bias')
    """
    kind = _kind_of(path)
    weights = weights_of(net)
    moving = {id(p) for p in may_have_moved(net)}
    # MindSpore drops a value without elements when it saves
    saved = {name: p for name, p in weights.items() if id(p) in moving and p.size}
    if not saved:
        raise ArgumentError(
            f"net has {len(weights)} parameters, and nothing of it may have moved; unfreeze what "
            "was trained, or save all with mindspore.save_checkpoint"
        )
    _refuse_complex(saved)
    rest = {name: p for name, p in weights.items() if name not in saved}
    adapters = all(ADAPTER.search(name) for name in saved)
    written = {f"{PEFT}{name}": p for name, p in saved.items()} if adapters else saved
    side = describe(written, rest, plan)
    if not saves_here(weights.values()):
        return list(saved)
    write_values(path, written, kind)
    # second, and it names the values: an older one beside new weights, or none, is noticed
    side.write(Path(path))
    return list(saved)


def weights_of(net: object) -> dict[str, Parameter]:
    """Return the parameters of a network by name, in network order.

    Raises:
        ArgumentTypeError: It is no Cell, or holds an optimizer, whose state is no weight.
        ConflictError: Two parameters have one name.
    """
    if not isinstance(net, nn.Cell):
        raise ArgumentTypeError(f"net {net!r} is no Cell; give the network")
    for cell in every_cell(net):
        if isinstance(cell, _OPTIMIZERS):
            raise ArgumentTypeError(
                f"net {type(net).__name__} holds the optimizer {type(cell).__name__}; give the "
                "network that it trains, which has the same weights"
            )
    return {str(parameter.name): parameter for parameter in paths_of(net)}


def _kind_of(path: str | os.PathLike[str]) -> Literal["ckpt", "safetensors"]:
    ending = Path(path).suffix
    if ending == ".ckpt":
        return "ckpt"
    if ending == ".safetensors":
        return "safetensors"
    raise ArgumentError(
        f"path {str(path)!r} ends in {ending!r}, which MindSpore could not load; let it end in "
        "'.ckpt' or '.safetensors'"
    )


def _refuse_complex(saved: dict[str, Parameter]) -> None:
    wrong = [name for name, p in saved.items() if p.dtype in mstype.complex_type]
    if wrong:
        raise ArgumentError(
            f"weight {wrong[0]!r} is complex, and MindSpore cannot load what it saves of it; keep "
            "its real and imaginary parts as two weights, or freeze it"
        )
