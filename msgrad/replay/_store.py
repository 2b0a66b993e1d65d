"""A store of features: for each sample the tensors that a frozen part made of it, bit for bit."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msgrad.errors import ArgumentError
from msgrad.network import bits
from msgrad.replay._samples import KEY_BYTES

_FIRST_ROWS = 256
_KEYS = "keys.bin"
_FORMAT, _CHECK_BYTES = 2, 4


@dataclass(frozen=True)
class RowKind:
    """What one sample has of one tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes of one row."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class FeatureStore:
    """Rows by key, in memory or in memory-mapped files, never more than a number of bytes.

    Args:
        kinds: The tensors of a sample.
        max_bytes: Limit of all rows together, bytes; what comes later is not kept.
        folder: Where to keep the rows as files; a folder that holds rows is gone on with. One
            process uses it at a time. Rows of an earlier one stay, whatever the limit is now.

    Raises:
        ArgumentError: Another process, or another store of this one, uses the folder.
    """

    def __init__(self, kinds: Sequence[RowKind], max_bytes: int, folder: Path | None) -> None:
        self.kinds = list(kinds)
        self.row_bytes = sum(kind.bytes for kind in kinds)
        self.most = max_bytes // self.row_bytes
        self._places: dict[bytes, int] = {}
        self._checks: list[bytes] = []  # of each row in a file
        self._folder = folder
        self._lock = _lock(folder) if folder else None
        self._arrays = [self._file(i) for i in range(len(kinds))] if folder else []
        if folder:
            self._open(folder)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes(self) -> int:
        """Bytes of the rows that are kept."""
        return len(self) * self.row_bytes

    @property
    def full(self) -> bool:
        """Whether no further row is kept."""
        return len(self) >= self.most

    def has(self, keys: Sequence[bytes]) -> bool:
        """Say whether all of these are kept."""
        return all(key in self._places for key in keys)

    def read(self, keys: Sequence[bytes]) -> list[np.ndarray]:
        """Return the rows of these keys, one array per kind."""
        places = [self._places[key] for key in keys]
        return [array[places] for array in self._arrays]

    def holds(self, keys: Sequence[bytes], values: Sequence[np.ndarray]) -> bool:
        """Say whether these rows are kept with the same bits."""
        return self.has(keys) and all(
            np.array_equal(bits(old), bits(new))
            for old, new in zip(self.read(keys), values, strict=True)
        )

    def add(self, keys: Sequence[bytes], values: Sequence[np.ndarray]) -> None:
        """Keep rows that are not there yet, as far as there is room."""
        fresh: dict[bytes, int] = {}
        for number, key in enumerate(keys):
            if key not in self._places and len(self) + len(fresh) < self.most:
                fresh.setdefault(key, number)
        if not fresh:
            return
        start, end = len(self), len(self) + len(fresh)
        self._make_room(end)
        for array, value in zip(self._arrays, values, strict=True):
            array[start:end] = value[list(fresh.values())]
        self._places.update(zip(fresh, range(start, end), strict=True))
        if self._folder:
            self._checks[start:] = [self._check(place) for place in range(start, end)]

    def clear(self) -> None:
        """Forget all rows."""
        self._places, self._checks = {}, []

    def flush(self) -> None:
        """Write what is kept in files to the disk; the rows first, then what tells of them."""
        if not self._folder:
            return
        for array in self._arrays:
            if isinstance(array, np.memmap):
                array.flush()
        part = self._folder / f"keys.{os.getpid()}.part"
        told = [key + self._checks[place] for key, place in self._places.items()]
        part.write_bytes(b"".join(told))
        os.replace(part, self._folder / _KEYS)

    def close(self) -> None:
        """Write out and let go of the rows and of the folder."""
        self.flush()
        self._arrays, self._places = [], {}
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_room(self, rows: int) -> None:
        if self._folder:
            return
        room = len(self._arrays[0]) if self._arrays else 0
        if rows <= room:
            return
        room = min(self.most, max(rows, _FIRST_ROWS, 2 * room))
        new = [np.empty((room, *kind.shape), kind.dtype) for kind in self.kinds]
        for array, old in zip(new, self._arrays, strict=False):
            array[: len(self)] = old[: len(self)]
        self._arrays = new

    def _file(self, number: int) -> np.ndarray:
        assert self._folder is not None
        kind, path = self.kinds[number], self._folder / f"rows{number}.bin"
        if not kind.bytes or not self.most:
            return np.empty((self.most, *kind.shape), kind.dtype)
        # a file of this length takes room on the disk only where it was written
        with open(path, "ab") as file:
            file.truncate(max(file.tell(), self.most * kind.bytes))
        rows = path.stat().st_size // kind.bytes
        return np.memmap(path, kind.dtype, "r+", shape=(rows, *kind.shape))

    def _open(self, folder: Path) -> None:
        """Take over the rows of an earlier process, up to the first that is damaged."""
        told, kept = folder / "kinds.json", folder / _KEYS
        kinds = json.dumps([_FORMAT, *([list(k.shape), k.dtype] for k in self.kinds)])
        if not (kept.exists() and told.exists() and told.read_text(encoding="utf-8") == kinds):
            kept.unlink(missing_ok=True)
            told.write_text(kinds, encoding="utf-8")
            return
        text, size = kept.read_bytes(), KEY_BYTES + _CHECK_BYTES
        for place in range(min(len(text) // size, len(self._arrays[0]))):
            entry = text[place * size : (place + 1) * size]
            if entry[KEY_BYTES:] != self._check(place):
                break
            self._places[entry[:KEY_BYTES]] = place
            self._checks.append(entry[KEY_BYTES:])

    def _check(self, place: int) -> bytes:
        total = 0
        for array in self._arrays:
            total = zlib.crc32(array[place].tobytes(), total)
        return total.to_bytes(_CHECK_BYTES, "little")


def _lock(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ArgumentError(
            f"folder {str(folder)!r} is in use by another replay; close that one, or give another"
        ) from None
    return lock
