"""The arguments of a train step, checked."""

from __future__ import annotations

import math

from mindspore import nn

from msgrad._errors import ArgumentError, ArgumentTypeError


def check_arguments(optimizer: object, train_cell: object, clip_norm: object) -> None:
    """Refuse what cannot be used, before anything is built.

    Raises:
        ArgumentTypeError: An argument has a wrong type.
        ArgumentError: `clip_norm` is not above 0 and finite.
    """
    if isinstance(optimizer, nn.Cell) and not hasattr(optimizer, "parameters"):
        raise ArgumentTypeError(
            f"optimizer is a {type(optimizer).__name__}, no optimizer; the order is "
            "TrainStep(network, optimizer, loss_fn)"
        )
    if isinstance(optimizer, nn.Cell):
        name = type(optimizer).__name__
        raise ArgumentTypeError(
            f"optimizer is an instance of {name}, whose parameters are fixed; "
            f"give a callable that makes one for each stage: lambda p: {name}(p, ...)"
        )
    if not callable(optimizer):
        raise ArgumentTypeError(
            f"optimizer {optimizer!r} cannot be called; give a function (parameters) -> optimizer"
        )
    if train_cell is not None and (isinstance(train_cell, nn.Cell) or not callable(train_cell)):
        raise ArgumentTypeError(
            f"train_cell {type(train_cell).__name__} is no class or function; "
            "give one that takes (network, optimizer) and returns a Cell"
        )
    if clip_norm is None:
        return
    if isinstance(clip_norm, bool) or not isinstance(clip_norm, (int, float)):
        raise ArgumentTypeError(
            f"clip_norm {clip_norm!r} is no number; give the largest norm, such as 1.0"
        )
    if not (math.isfinite(clip_norm) and clip_norm > 0):
        raise ArgumentError(
            f"clip_norm {clip_norm!r} is not above 0 and finite; give the largest norm, such as 1.0"
        )
