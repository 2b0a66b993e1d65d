"""A fingerprint: one short text that differs where a bit of the weights does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from mindspore import Tensor, nn

from msgrad._select import Pattern, select
from msgrad._weights import copy_of


def fingerprint(net: nn.Cell, *patterns: Pattern) -> str:
    """Return a text that stands for the names, shapes, types and bits of weights.

    The order of the weights, flags and wrappers do not count. Equal networks have equal
    fingerprints in every process; another bit, name, shape or type gives another one.

    Args:
        net: Network to look at; it is not changed.
        *patterns: Which weights, see `select`; none means all of them, running statistics included.

    Returns:
        64 hexadecimal digits (SHA-256).

    Raises:
        NoMatchError: A pattern selects nothing.

    Examples:
        >>> from mindspore import Tensor, nn, ops
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> whole, first = mg.fingerprint(net), mg.fingerprint(net, "0")
        >>> _ = ops.assign(net[1].bias, Tensor([1.0, 2.0]))
        >>> mg.fingerprint(net) == whole, mg.fingerprint(net, "0") == first
        (False, True)
    """
    return fingerprint_of({str(p.name): p for p in select(net, *(patterns or ("*",)))})


def fingerprint_of(values: Mapping[str, Tensor]) -> str:
    """Return the fingerprint of named values, in whatever order they come."""
    digest = hashlib.sha256()
    for name in sorted(values):
        value = copy_of(values[name])
        # lengths stand in front, so that no name can take on the bytes of another weight
        head = f"{name}|{str(values[name].dtype).lower()}|{value.shape}|{value.nbytes}"
        digest.update(f"{len(head.encode())}|{head}".encode())
        digest.update(value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
