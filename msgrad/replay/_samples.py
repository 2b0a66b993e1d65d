"""The samples of a dataset: its batches, the rows in them, and a key for each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor, dataset

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import copy_of

KEY_BYTES = 16
# operations of mindspore.dataset that draw random numbers without saying so in their name
_DRAWS = {"AutoAugment", "RandAugment", "TrivialAugmentWide", "UniformAugment"}
_DRAWS |= {"CutOut", "CutMixBatch", "MixUp", "MixUpBatch"}


def check_dataset(data: object, augmented: bool | None) -> None:
    """Check that the samples of a dataset are the same in each epoch, as far as that can be seen.

    Raises:
        ArgumentTypeError: It is no dataset of MindSpore.
        ArgumentError: It augments at random, or is not declared not to.
    """
    if not isinstance(data, dataset.Dataset):
        raise ArgumentTypeError(
            f"dataset is a {type(data).__name__}; give a mindspore.dataset, of whole batches"
        )
    random = sorted(_random_operations(data))
    if random:
        raise ArgumentError(
            f"dataset augments at random ({', '.join(random)}), so no sample comes twice; take "
            "that out to replay"
        )
    if augmented is not False:
        raise ArgumentError(
            f"augmented {augmented!r} does not say that samples are the same in each epoch; give "
            "augmented=False where the dataset draws no random numbers but for its order"
        )


def _random_operations(data: Any) -> set[str]:
    found = _random_in(getattr(data, "operations", None) or ())
    for child in data.children:
        found |= _random_operations(child)
    return found


def _random_in(operations: Any) -> set[str]:
    """Name what draws random numbers among operations, and among those that one of them holds."""
    found: set[str] = set()
    for operation in operations if isinstance(operations, (list, tuple)) else (operations,):
        name = type(operation).__name__
        if "random" in name.lower() or name in _DRAWS:
            found.add(name)
        for inner in ("transforms", "operations", "policy"):
            held = getattr(operation, inner, None)
            if isinstance(held, (list, tuple)):
                found |= _random_in(held)
    return found


def batches_of(data: dataset.Dataset) -> Iterator[list[Tensor]]:
    """Go through a dataset once."""
    yield from data.create_tuple_iterator(num_epochs=1)


def rows_of(inputs: Sequence[Any]) -> int:
    """Count the samples of a batch.

    Raises:
        ArgumentError: There is no batch.
    """
    first: Any = inputs[0] if inputs else None
    if not isinstance(first, Tensor) or first.ndim == 0:
        raise ArgumentError("the first input is no tensor of samples; call it with a batch")
    return first.shape[0]


def reordered(value: Any, order: np.ndarray, rows: int) -> Any:
    """Take rows of an input in another order; what has no row per sample stays."""
    if _has_rows(value, rows):
        return Tensor(copy_of(value)[order], value.dtype)
    return value


def _has_rows(value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.shape[0] == rows


def keys_of(inputs: Sequence[Any]) -> list[bytes]:
    """Return a key for each sample: of the bits of its inputs, and of the size of its batch."""
    rows = rows_of(inputs)
    shared = hashlib.blake2b(str(rows).encode(), digest_size=KEY_BYTES)
    own = []
    for value in inputs:
        if _has_rows(value, rows):
            array = copy_of(value)
            shared.update(f"{array.dtype}{array.shape[1:]}".encode())
            own.append(array)
        else:
            _note(shared, value)
    keys = []
    for row in range(rows):
        key = shared.copy()
        for array in own:
            key.update(array[row].tobytes())
        keys.append(key.digest())
    return keys


def _note(key: Any, value: Any) -> None:
    """Let a key depend on an input that has no row for each sample; tensors may lie in it."""
    if isinstance(value, Tensor):
        array = copy_of(value)
        key.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    elif isinstance(value, (tuple, list)):
        key.update(f"{type(value).__name__}{len(value)}".encode())
        for item in value:
            _note(key, item)
    elif isinstance(value, dict):
        _note(key, list(value.items()))
    else:
        key.update(repr(value).encode())
