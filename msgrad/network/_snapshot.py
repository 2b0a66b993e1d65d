"""A snapshot of weights, and the movement between two states of them, counted in bits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from mindspore import Parameter, Tensor, nn

from msgrad._files import as_json
from msgrad._text import plain_table
from msgrad.errors import ConflictError, ShapeError
from msgrad.network._select import Pattern, select
from msgrad.network._values import bits, copy_of, norm_of

_COLUMNS = 100


@dataclass(frozen=True)
class MovementRow:
    """How far one weight moved.

    Attributes:
        name: Name of the parameter.
        shape: Its shape.
        max_change: Largest absolute change of an element. NaN where a NaN came, went or changed,
            else infinite where an infinity did; 0.0 beside a `bits_changed` above 0 says that only
            signs of zeros changed.
        l2: Euclidean norm of the change, NaN and infinite likewise.
        bits_changed: Number of elements whose bits differ.

    Examples:
        >>> import numpy as np
        >>> from msgrad.network import compare_arrays
        >>> compare_arrays("fc.bias", np.zeros(2), np.array([0.0, 0.5]))
        MovementRow(name='fc.bias', shape=(2,), max_change=0.5, l2=0.5, bits_changed=1)
    """

    name: str
    shape: tuple[int, ...]
    max_change: float
    l2: float
    bits_changed: int


@dataclass(frozen=True, repr=False)
class Movement:
    """The movement of several weights; printed, it is a table.

    Attributes:
        rows: One row per weight, moved or not, in network order.

    Examples:
        >>> from mindspore import Tensor, nn, ops
        >>> import msgrad as mg
        >>> net = nn.Dense(2, 1, weight_init="zeros")
        >>> before = mg.Snapshot(net)
        >>> _ = ops.assign(net.weight, Tensor([[0.0, 0.5]]))
        >>> print(before.compare())
        name    shape   max change  l2   bits changed
        weight  (1, 2)  0.5         0.5        1 of 2
        bias    (1,)    0           0      bits equal
        1 of 2 weights moved
    """

    rows: tuple[MovementRow, ...]

    @property
    def equal(self) -> bool:
        """Whether every weight has the bits that it had."""
        return not self.moved

    @property
    def moved(self) -> list[str]:
        """The names of the weights whose bits differ, in network order."""
        return [row.name for row in self.rows if row.bits_changed]

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the rows as JSON, and write them to a file where a path is given.

        JSON has no NaN and no infinity: they become the strings "nan" and "inf".

        Args:
            path: File to write; its folder is made.

        Returns:
            The JSON text.

        Examples:
            >>> from mindspore import nn
            >>> import msgrad as mg
            >>> text = mg.Snapshot(nn.Dense(2, 1)).compare().to_json()
            >>> text.splitlines()[1]
            '  "equal": true,'
        """
        return as_json({"equal": self.equal, "rows": list(map(asdict, self.rows))}, path)

    def __str__(self) -> str:
        head = ("name", "shape", "max change", "l2", "bits changed")
        table = plain_table(head, list(map(_cells_of, self.rows)), right=[4], most=_COLUMNS)
        return f"{table}\n{len(self.moved)} of {len(self.rows)} weights moved"

    def __repr__(self) -> str:
        return f"Movement({len(self.moved)} of {len(self.rows)} weights moved)"


class Snapshot:
    """A copy of weights as they are now, to be compared with what they become.

    The copies are real and lie in host memory, as many bytes as the weights. Weights that are added
    to the network later are not looked at.

    Args:
        net: Network to copy from; it is not changed.
        *patterns: Which weights, see `select`; none means all of them, running statistics included.

    Raises:
        NoMatchError: A pattern selects nothing.

    Examples:
        >>> from mindspore import Tensor, nn, ops
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> before = mg.Snapshot(net)
        >>> _ = ops.assign(net[1].bias, Tensor([1.0, 2.0]))
        >>> before.moved()
        ['1.bias']
    """

    def __init__(self, net: nn.Cell, *patterns: Pattern) -> None:
        self._net = net
        self._copies = [(p, copy_of(p)) for p in select(net, *(patterns or ("*",)))]

    def moved(self) -> list[str]:
        """Name the weights whose bits differ from those of the snapshot, in network order.

        Raises:
            ConflictError: A weight of the snapshot has left the network.
            ShapeError: A weight has another shape or dtype than it had.
        """
        return self.compare().moved

    def compare(self) -> Movement:
        """Compare the weights as they are now with the snapshot; it can be asked again later.

        Returns:
            The movement, one row per weight of the snapshot.

        Raises:
            ConflictError: A weight of the snapshot has left the network.
            ShapeError: A weight has another shape or dtype than it had.
        """
        _refuse_missing([p for p, _ in self._copies], select(self._net, "*"))
        rows = (compare_arrays(str(p.name), old, copy_of(p)) for p, old in self._copies)
        return Movement(tuple(rows))

    def __repr__(self) -> str:
        size = sum(old.nbytes for _, old in self._copies)
        return f"Snapshot({len(self._copies)} weights, {size} bytes)"


def compare_arrays(name: str, before: np.ndarray, after: np.ndarray) -> MovementRow:
    """Compare two states of one weight bit by bit.

    Raises:
        ShapeError: They differ in shape or dtype.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        raise ShapeError(
            f"weight {name!r} cannot be compared; take a new Snapshot after the change\n"
            f"before: {before.dtype} {before.shape}\nafter:  {after.dtype} {after.shape}"
        )
    # Complex128 has no unsigned integer of its size, its bits come as several words per element.
    words = (bits(before) != bits(after)).reshape(before.size, -1 if before.size else 1)
    differ = words.any(axis=1)
    change = _distance(before.ravel()[differ], after.ravel()[differ])
    largest = float(change.max(initial=0.0))
    return MovementRow(name, before.shape, largest, norm_of(change), int(differ.sum()))


def _distance(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return |after - before| as float64, for integers without overflow."""
    if before.dtype.kind in "iub":
        high, low = np.maximum(before, after), np.minimum(before, after)
        # modulo 2**64 the difference is exact, whatever the signs
        return (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    wide = np.complex128 if before.dtype.kind == "c" else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        return np.abs(after.astype(wide) - before.astype(wide))


def _refuse_missing(taken: Iterable[Parameter], present: Iterable[Parameter]) -> None:
    names = {id(p): str(p.name) for p in present}
    gone = [str(p.name) for p in taken if id(p) not in names]
    if not gone:
        return
    replaced = gone[0] in names.values()
    fate = "is now another Parameter object" if replaced else "is no longer in the network"
    more = f" (and {len(gone) - 1} more)" if len(gone) > 1 else ""
    raise ConflictError(
        f"weight {gone[0]!r}{more} of the snapshot {fate}; take a new Snapshot after the change"
    )


def _cells_of(row: MovementRow) -> tuple[str, str, str, str, str]:
    size = math.prod(row.shape)
    count = f"{row.bits_changed} of {size}" if row.bits_changed else "bits equal"
    return row.name, str(row.shape), f"{row.max_change:.4g}", f"{row.l2:.4g}", count


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
