"""`msgrad doctor`: whether what msgrad needs is there and works, else what to do."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train import anf_ir_pb2

from msgrad.backend import TESTED, is_tested, use_device, why_not_ascend
from msgrad.cli._terminal import FOUND, OK, REMEDY, print_table
from msgrad.freezing import freeze
from msgrad.network import Snapshot
from msgrad.training import TrainStep

# Each from a version on and below another one; setup.py says the same.
PYTHON = ((3, 10), (3, 13))
MINDSPORE = (2, 7)
NUMPY = ((1, 26), (2, 0))
_TOOLS = ("PyYAML", "rich", "matplotlib")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        ok: Whether it is as it has to be.
        found: What was found.
        remedy: What to do where it is not as it has to be, or could be better; "" for nothing.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""


def run(given: argparse.Namespace) -> int:
    """Print a line for each thing that was looked at; 1 where one is not as it has to be."""
    found = list(checks())
    if given.json:
        print(json.dumps([asdict(check) for check in found], indent=2))
    else:
        rows = [("ok" if c.ok else "FAILED", c.name, c.found, c.remedy) for c in found]
        print_table(("", "what", "found", "what to do"), rows)
    return OK if all(check.ok for check in found) else FOUND


def checks() -> Iterator[Check]:
    """Look at one thing after the other; what raises is a check that failed."""
    for name, check, remedy in (
        ("Python", _python, "install Python 3.10 to 3.12"),
        ("MindSpore", _mindspore, REMEDY),
        ("NumPy", _numpy, "pip install 'numpy>=1.26,<2'"),
        ("protobuf", _protobuf, "pip install --upgrade protobuf"),
        ("device", _device, "run msgrad --debug doctor, and mindspore.run_check() in Python"),
        ("compiled step", _step, "run msgrad --debug doctor, and mindspore.run_check() in Python"),
    ):
        yield _checked(name, check, remedy)
    for package in _TOOLS:
        yield _tool(package)


def _checked(name: str, check: Callable[[], Check], remedy: str) -> Check:
    try:
        return check()
    # whatever is broken, and however it shows
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Check(name, False, f"{type(error).__name__}: {lines[0]}"[:200], remedy)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return _version("Python", version, PYTHON, "install Python 3.10 to 3.12")


def _mindspore() -> Check:
    version, (first, last) = ms.__version__, TESTED
    if _numbers(version)[:2] < MINDSPORE:
        return Check(
            "MindSpore", False, f"{version}, not {'.'.join(map(str, MINDSPORE))} or later", REMEDY
        )
    if is_tested(version):
        return Check("MindSpore", True, version)
    remedy = "look at the compiled step below; to be sure, pip install 'mindspore<2.11'"
    return Check("MindSpore", True, f"{version}, tested were {first} to {last}", remedy)


def _numpy() -> Check:
    # with NumPy 2, which MindSpore 2.10 accepts, `tensor * 2.0` fails
    return _version("NumPy", np.__version__, NUMPY, "pip install 'numpy>=1.26,<2'")


def _version(
    name: str, version: str, bounds: tuple[tuple[int, int], tuple[int, int]], remedy: str
) -> Check:
    low, high = bounds
    if low <= _numbers(version)[:2] < high:
        return Check(name, True, version)
    wanted = f"{low[0]}.{low[1]} or later and below {high[0]}.{high[1]}"
    return Check(name, False, f"{version}, not {wanted}", remedy)


def _protobuf() -> Check:
    # compiled graphs and checkpoints are read with it
    model = anf_ir_pb2.ModelProto()
    model.ParseFromString(model.SerializeToString())
    version = metadata.version("protobuf")
    wanted = re.search(r"protobuf>=([0-9.]+)", " ".join(metadata.requires("mindspore") or ()))
    if wanted is None or _numbers(version) >= _numbers(wanted[1]):
        return Check("protobuf", True, version)
    found = f"{version}, and MindSpore {ms.__version__} asks for {wanted[1]} or later"
    return Check("protobuf", False, found, f"pip install 'protobuf>={wanted[1]}'")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:3])


def _device() -> Check:
    obstacle = why_not_ascend()
    chosen = use_device("auto")
    if obstacle is None:
        return Check("device", True, chosen)
    fact, remedy = obstacle
    return Check("device", True, f"{chosen}: {fact}", f"for an Ascend {remedy}")


def _step() -> Check:
    """Do one step of a network whose first layer is frozen, in GRAPH_MODE."""
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 1))
    freeze(net, "0")
    step = TrainStep(net, lambda p: nn.Momentum(p, 0.1, 0.9), nn.MSELoss())
    before = Snapshot(net)
    step(Tensor(np.ones((2, 2), np.float32)), Tensor(np.ones((2, 1), np.float32)))
    moved = before.moved()
    found = f"moved {', '.join(moved) or 'nothing'}; frozen: 0.weight, 0.bias"
    ok = moved == ["1.weight", "1.bias"] and step.compilations == 1
    remedy = "MindSpore trains wrongly here; report this output to msgrad"
    return Check("compiled step", ok, found, "" if ok else remedy)


def _tool(package: str) -> Check:
    try:
        return Check(package, True, metadata.version(package))
    except metadata.PackageNotFoundError:
        return Check(package, True, "not installed, and not needed", "pip install 'msgrad[tools]'")
