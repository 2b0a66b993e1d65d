"""The command `msgrad` as it starts: it says in one line why MindSpore cannot be imported.

Outside the package, since importing anything of that imports MindSpore.
"""

from __future__ import annotations

import json
import sys
import traceback
from importlib.util import find_spec

_REMEDY = "pip install 'mindspore>=2.7,<2.11' 'numpy>=1.26,<2'"
# as in msgrad.cli._main, which cannot be read here: found by the doctor, and an error inside
_FOUND, _BROKEN = 1, 3


def main() -> int:
    """Run the command line of msgrad, where it can be imported.

    Returns:
        The exit code: that of the command; 1 of `doctor` and 3 of all others where MindSpore or
        msgrad cannot be imported.
    """
    try:
        from msgrad.cli import main as command
    # a missing library, another NumPy, a broken installation: all kinds of errors
    except Exception as error:
        return _cannot_start(error, sys.argv[1:])
    return command()


def _cannot_start(error: Exception, arguments: list[str]) -> int:
    if "--debug" in arguments:
        traceback.print_exception(error)
    missing = [name for name in ("mindspore", "numpy") if find_spec(name) is None]
    first = (str(error).strip().splitlines() or [""])[0]
    found = (
        f"{' and '.join(missing)} not installed" if missing else f"{type(error).__name__}: {first}"
    )
    doctor = "doctor" in arguments
    if doctor and "--json" in arguments:
        check = {"name": "MindSpore", "ok": False, "found": found, "remedy": _REMEDY}
        print(json.dumps([check], indent=2))
    else:
        more = "" if missing else ", or run msgrad --debug doctor"
        print(f"msgrad cannot start: {found[:200]}; {_REMEDY}{more}", file=sys.stderr)
    return _FOUND if doctor else _BROKEN


if __name__ == "__main__":
    sys.exit(main())
