"""Where a dry run happens: with CANN if it is there, else with stand-ins, in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import standins

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RANKS = 8
GRAPHS = "graphs"
RESULT = "result.json"
TIMEOUT = 1200  # ResNet-50 takes 75 seconds on a core of its own
SEARCHED = ("LD_LIBRARY_PATH", "PYTHONPATH")
# Without a device visible the plugin of a real CANN loads only in a dry run.
DRY_RUN = {"MS_SIMULATION_LEVEL": "1"}
LOADS = (
    "import sys; from mindspore.device_context import ascend; sys.exit(not ascend.is_available())"
)


class DryRunError(AssertionError):
    """A program of a dry run ended with an error; the message holds the end of what it said."""


def prepare(folder: Path) -> tuple[str, dict[str, str]]:
    """Say what stands in for the device, and with which environment variables it is used.

    Raises:
        NoStandInsError: There is no CANN, and the stand-ins cannot be built.
    """
    if cann_loads(folder):
        return f"CANN at {os.environ['ASCEND_HOME_PATH']}", {}
    return "stand-ins for CANN", standins.build(folder)


def cann_loads(folder: Path) -> bool:
    """Say whether a real CANN is set up here, so that MindSpore loads its Ascend plugin."""
    if not os.environ.get("ASCEND_HOME_PATH"):
        return False
    command = [sys.executable, "-c", LOADS]
    done = subprocess.run(command, cwd=folder, env=os.environ | DRY_RUN, capture_output=True)
    return done.returncode == 0


def environment(variables: Mapping[str, str], folder: Path, rank: int = 0) -> dict[str, str]:
    """Return the environment of a dry run as one rank of eight, which writes its graphs."""
    given = dict(os.environ)
    for key, value in variables.items():
        # found first, before what is there already
        given[key] = f"{value}:{given[key]}" if key in SEARCHED and key in given else value
    paths = [given.get("PYTHONPATH", ""), str(HERE), str(ROOT)]
    given["PYTHONPATH"] = ":".join(path for path in paths if path)
    return given | {
        **DRY_RUN,
        "RANK_SIZE": str(RANKS),
        "RANK_ID": str(rank),
        "MS_DEV_SAVE_GRAPHS": "1",
        "MS_DEV_SAVE_GRAPHS_PATH": str(folder / GRAPHS),
        "MS_DEV_DUMP_IR_PASSES": "graph_build",  # what the back end made, and no other stage
        "MS_DEV_RUNTIME_CONF": "switch_inline:false",  # else an `if` on a tensor ends in an error
    }


def dry_run(
    program: str, *arguments: str, variables: Mapping[str, str], folder: Path, rank: int = 0
) -> Any:
    """Run a program of this folder in a process and an empty folder; return what it wrote."""
    command = [sys.executable, str(HERE / program), *arguments]
    done = subprocess.run(
        command,
        cwd=folder,  # MindSpore writes folders into the working directory
        env=environment(variables, folder, rank),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    result = folder / RESULT
    if done.returncode or not result.is_file():
        said = (done.stdout + done.stderr)[-3000:]
        raise DryRunError(f"{program} {' '.join(arguments)} ended with {done.returncode}:\n{said}")
    return json.loads(result.read_text(encoding="utf-8"))
