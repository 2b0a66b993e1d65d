"""The versions of MindSpore that msgrad was tested with; another one is told once."""

from __future__ import annotations

import logging
import re

import mindspore as ms

TESTED = ("2.7.0", "2.10.x")
"""The first and the last, as they are printed."""
_FIRST, _LAST = (2, 7), (2, 10)


def is_tested(version: str) -> bool:
    """Say whether msgrad was tested with a version of MindSpore.

    Examples:
        >>> is_tested("2.10.1"), is_tested("2.11.0rc1")
        (True, False)
    """
    numbers = tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2])
    return _FIRST <= numbers <= _LAST


def note_untested(version: str) -> None:
    """Log one line where msgrad was not tested with this version of MindSpore."""
    if not is_tested(version):
        logging.getLogger("msgrad").warning(
            "MindSpore %s was not tested with msgrad, which was tested with %s to %s; "
            "msgrad doctor tries a step",
            version,
            *TESTED,
        )


# at the first use of msgrad in a process: this file is imported once
note_untested(ms.__version__)
