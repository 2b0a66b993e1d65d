"""Loading weights from a file: by exact names, all or nothing, every difference named."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad._text import cut
from msgrad.checkpoints._files import read_checkpoint, state_among, take_meta
from msgrad.checkpoints._save import ADAPTER, PEFT, weights_of
from msgrad.checkpoints._side_file import SideFile, kind_of, read_side_file, side_path
from msgrad.errors import CheckpointError
from msgrad.network import copy_of, refuse_lent, write

_MOST_LINES = 20


@dataclass(frozen=True)
class LoadReport:
    """What was loaded from a file, and what does not fit.

    Attributes:
        loaded: Names of the weights that were written, in network order.
        missing: Weights of the network that are neither in the file nor in the base that it names.
        unexpected: Weights in the file that have no place in the network.
        other_shape: Weights of another shape, as ``name: float32 (2,) in the file, float32 (3,) in
            the network``.
        other_dtype: Weights of the same shape and another type, likewise.
        other_base: Weights of the base, for a file of `save_trainable`, that have other bits in the
            network or are missing there.
        state: Names of optimizer state, counters and rates in the file, which are no weights.
        verified: Whether a checksum says that the values are those that were written. Files of
            `save_trainable` and ``TrainStep.save`` have one; a plain checkpoint of MindSpore has
            none, so that a flipped bit in a value is not noticed.

    Examples:
        >>> print(LoadReport(("fc.weight",), missing=("fc.bias",)))
        loaded 1 weight
        missing in the file: fc.bias
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    other_shape: tuple[str, ...] = ()
    other_dtype: tuple[str, ...] = ()
    other_base: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    verified: bool = False

    @property
    def complete(self) -> bool:
        """Whether everything in the file has its place, and nothing else is left to be loaded."""
        return not self.differences

    @property
    def differences(self) -> list[str]:
        """All that does not fit, one line each."""
        return [
            *(f"missing in the file: {name}" for name in self.missing),
            *(f"not in the network: {name}" for name in self.unexpected),
            *(f"other shape: {text}" for text in self.other_shape),
            *(f"other type: {text}" for text in self.other_dtype),
            *(f"other base: {name}" for name in self.other_base),
        ]

    def __str__(self) -> str:
        lines = [f"loaded {len(self.loaded)} weight{'s' * (len(self.loaded) != 1)}"]
        lines += self.differences
        if self.state:
            lines.append(f"{len(self.state)} values of optimizer state are no weights")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Content:
    """What a file holds: weights, the names of state, and what stands beside it."""

    weights: dict[str, Tensor]
    state: tuple[str, ...]
    side: SideFile | None = None
    verified: bool = False


def load_weights(
    net: nn.Cell,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    rename: Mapping[str, str] | None = None,
) -> LoadReport:
    """Load weights from a checkpoint by their exact names, in place, all of them or none.

    Everything is checked before anything is written. Flags, freezes and holds stay as they are: a
    frozen weight gets its value and is frozen. Optimizers, train steps and compiled graphs keep the
    weights, also when training has begun; optimizer state stays as it is. A plain checkpoint of
    MindSpore has no checksum: a flipped bit in it is not noticed, and ``verified`` of the report
    says so.

    Args:
        net: Network to load into, without an optimizer.
        path: A ``.ckpt`` or safetensors file of MindSpore, of `save_trainable` or of
            ``TrainStep.save``. Of the last only the weights are taken; to go on with a run use
            ``TrainStep.load``.
        strict: Everything must fit: a checkpoint has every weight of the network and no other, each
            of the same shape and type; a file of `save_trainable` stands on the same base. With
            False what fits is loaded, and the report says what does not.

        rename: Beginnings of names in the file, and what stands there in the network, such as
            ``{"model.": "backbone."}``; the longest that fits counts. The base of a file of
            `save_trainable` is then not compared.

    Returns:
        What was loaded, and what was not.

    Raises:
        ArgumentTypeError: ``net`` is no Cell or holds an optimizer.
        ConflictError: Two parameters have one name.
        CheckpointError: The file cannot be read, does not belong to the side file next to it, does
            not fit (`differences` has all that does not), or nothing in it fits.

    Examples:
        >>> import mindspore as ms
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> ms.save_checkpoint(nn.Dense(4, 2), "dense.ckpt")
        >>> mg.load_weights(nn.Dense(4, 2), "dense.ckpt").loaded
        ('weight', 'bias')
        >>> mg.load_weights(nn.Dense(4, 3), "dense.ckpt")
        Traceback (most recent call last):
            ...
        msgrad.errors.CheckpointError: path 'dense.ckpt' does not fit; nothing was loaded:
        other shape: weight: float32 (2, 4) in the file, float32 (3, 4) in the network
        other shape: bias: float32 (2,) in the file, float32 (3,) in the network
    """
    weights = weights_of(net)
    refuse_lent(weights.values(), "a load would be lost")
    content = _read(path)
    if rename:
        content = _renamed(content, rename)
    report = _compared(weights, content)
    if strict and not report.complete:
        raise _unfit(path, report, content)
    if not report.loaded:
        raise CheckpointError(
            f"path {str(path)!r} holds {len(content.weights) - len(content.state)} weights, none "
            f"of which fits any of the {len(weights)} of the network; nothing was loaded",
            differences=report.differences,
        )
    _write_all(weights, {name: content.weights[name] for name in report.loaded})
    return report


def _read(path: str | os.PathLike[str]) -> _Content:
    side = read_side_file(Path(path))
    values = read_checkpoint(path, damaged=side and side.other_values(Path(path)))
    if side is not None:
        side.check_belongs(Path(path), values)
        values = _without_prefix(values)
        return _Content(values, (), side, verified=True)
    values = _without_prefix(values)
    meta = take_meta(path, values)
    # TrainStep.save says which of its values are weights
    state = state_among(values) if meta is None else values.keys() - meta["parameters"].keys()
    return _Content(
        values, tuple(name for name in values if name in state), verified=meta is not None
    )


def _renamed(content: _Content, rename: Mapping[str, str]) -> _Content:
    def new(name: str) -> str:
        old = max((o for o in rename if name.startswith(o)), key=len, default=None)
        return name if old is None else rename[old] + name.removeprefix(old)

    values = {new(name): value for name, value in content.weights.items()}
    if len(values) < len(content.weights):
        raise CheckpointError(
            f"rename {dict(rename)!r} gives two values of the file one name; give other beginnings"
        )
    return _Content(values, tuple(map(new, content.state)), verified=content.verified)


def _without_prefix(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return adapters of PEFT under the names that they have in a network."""
    if not all(name.startswith(PEFT) and ADAPTER.search(name) for name in values):
        return values
    return {name.removeprefix(PEFT): value for name, value in values.items()}


def _compared(weights: Mapping[str, Parameter], content: _Content) -> LoadReport:
    values, side = content.weights, content.side
    # a weight of the network is no state, whatever its name
    state = {name for name in content.state if name not in weights}
    base = side.base["weights"] if side is not None else {}
    both = [name for name in weights if name in values]
    shapes = [name for name in both if values[name].shape != weights[name].shape]
    types = [
        name
        for name in both
        if values[name].dtype != weights[name].dtype and name not in set(shapes)
    ]
    unlike = {*shapes, *types}
    # a file of adapters goes onto any base
    lone = side is None and bool(values) and all(ADAPTER.search(name) for name in values)
    rest = {
        name: p
        for name, p in weights.items()
        if name not in values and (not lone or ADAPTER.search(name))
    }
    return LoadReport(
        loaded=tuple(name for name in both if name not in unlike),
        # a value without elements is in no file
        missing=tuple(n for n, p in rest.items() if n not in base and p.size),
        unexpected=tuple(n for n in values if n not in weights and n not in state),
        other_shape=tuple(_unlike(name, values, weights) for name in shapes),
        other_dtype=tuple(_unlike(name, values, weights) for name in types),
        other_base=tuple(side.other_base(rest)) if side is not None else (),
        state=tuple(name for name in content.state if name in state),
        verified=content.verified,
    )


def _unlike(name: str, values: Mapping[str, Tensor], weights: Mapping[str, Parameter]) -> str:
    return f"{name}: {kind_of(values[name])} in the file, {kind_of(weights[name])} in the network"


def _unfit(path: str | os.PathLike[str], report: LoadReport, content: _Content) -> CheckpointError:
    found = report.differences
    lines = [f"path {str(path)!r} does not fit; nothing was loaded:"]
    lines += cut(found, _MOST_LINES, "and {} more, all in .differences of this error")
    if report.other_base:
        lines.append("load the base that it was trained on first, or give strict=False")
    elif content.side is None and set(found) == {
        f"missing in the file: {n}" for n in report.missing
    }:
        lines.append(
            f"if save_trainable wrote it, {str(side_path(Path(path)))!r} belongs beside it; "
            "strict=False loads what is there"
        )
    return CheckpointError("\n".join(lines), differences=found)


def _write_all(weights: Mapping[str, Parameter], values: Mapping[str, Tensor]) -> None:
    """Write all values, or, whatever interrupts it, none."""
    before: dict[str, np.ndarray] = {}
    try:
        for name, value in values.items():
            before[name] = copy_of(weights[name])
            write(weights[name], value)
    except BaseException:
        for name, value in before.items():
            write(weights[name], value)
        raise
