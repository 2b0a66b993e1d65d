"""One compiled update of many weights against a loop of eager updates and against NumPy.

python benchmarks/weight_updates.py            times as ratios, and memory
python benchmarks/weight_updates.py --short    compile counts and values only
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

import msgrad as mg

ROUNDS = 30
SIZES = [(200, 256), (20, 2048)]
MANY = 1000


class Weights(nn.Cell):
    """A number of square weights."""

    def __init__(self, count: int, side: int) -> None:
        super().__init__()
        for i in range(count):
            weight = Tensor(np.full((side, side), 1.0 + i, np.float32))
            setattr(self, f"w{i}", Parameter(weight, name=f"w{i}"))


def times(w: Any) -> Any:
    """Multiply: one operator."""
    return w * 0.999


def grow(w: Any) -> Any:
    """Add a share: two operators, and so a value in between."""
    return w + 1e-3 * w


FUNCTIONS = {"0.999 · w": times, "w + 1e-3 · w": grow}


def compiled(net: nn.Cell, function: Callable[[Any], Any]) -> Callable[[], object]:
    """Change all in one graph of msgrad, compiled once."""
    return mg.WeightUpdates(net, {"*": function})


def one_call(net: nn.Cell, function: Callable[[Any], Any]) -> Callable[[], object]:
    """Check and change all in one call of msgrad, compiled at each call."""
    return lambda: mg.update_weights(net, {"*": function})


def eager(net: nn.Cell, function: Callable[[Any], Any]) -> Callable[[], object]:
    """Assign one weight after the other, as a user would."""

    def update() -> None:
        for parameter in net.get_parameters():
            ops.assign(parameter, function(parameter))

    return update


def through_numpy(net: nn.Cell, function: Callable[[Any], Any]) -> Callable[[], object]:
    """Compute in NumPy and assign."""

    def update() -> None:
        for parameter in net.get_parameters():
            ops.assign(parameter, Tensor(function(parameter.asnumpy())))

    return update


WAYS = {"compiled": compiled, "one_call": one_call, "eager": eager, "numpy": through_numpy}


def seconds(update: Callable[[], object], net: nn.Cell) -> float:
    """Time one update, its last weight included."""
    start = time.perf_counter()
    update()
    next(reversed(list(net.get_parameters()))).asnumpy()
    return time.perf_counter() - start


def measure(function: Callable, count: int, side: int) -> tuple[float, dict[str, float]]:
    """Return the first compiled update in seconds, and the best of each way, taken in turns."""
    net = Weights(count, side)
    updates = {way: WAYS[way](net, function) for way in ("compiled", "eager", "numpy")}
    first = {way: seconds(update, net) for way, update in updates.items()}
    rounds = [{way: seconds(update, net) for way, update in updates.items()} for _ in range(ROUNDS)]
    return first["compiled"], {way: min(r[way] for r in rounds) for way in updates}


def status(key: str) -> float:
    """Return a line of /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


class Largest(nn.Cell):
    """Read every weight, with next to no memory of its own."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.weights = ParameterTuple(list(net.get_parameters()))
        self.map = ops.HyperMap()

    def construct(self) -> tuple[Tensor, ...]:
        """Return the largest element of each."""
        return self.map(ops.reduce_max, self.weights)


def memory(way: str, function: Callable[[Tensor], Tensor], count: int, side: int) -> None:
    """Print how far an update raises the memory of this process, in MiB."""
    mode = ms.get_context("mode")
    net, small = Weights(count, side), Weights(count, 2)
    WAYS[way](small, function)()
    # The weights go to the device.
    ms.set_context(mode=ms.GRAPH_MODE)
    Largest(net)()
    ms.set_context(mode=mode)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    update = WAYS[way](net, function)
    for _ in range(3):
        update()
    print(status("VmHWM") - before)


def memory_of(way: str, mode: str, function: str, count: int, side: int) -> float:
    """Measure the memory of one way in a process of its own."""
    what = [way, function, str(count), str(side)]
    command = [sys.executable, __file__, "--mode", mode, "--memory", *what]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def short() -> None:
    """Check that many weights compile once, and to the right values."""
    for count in (200, MANY):
        net = Weights(count, 2)
        updates = mg.WeightUpdates(net, {"*": mg.rules.multiply(0.5), "w1": mg.rules.multiply(2.0)})
        for _ in range(3):
            updates()
        last = float(list(net.get_parameters())[-1].asnumpy()[0, 0])
        assert last == count * 0.5**3, last
        assert float(net.w1.asnumpy()[0, 0]) == 2.0 * 2.0**3
        print(f"{count} weights, 3 updates: {len(updates.compile_cache)} graph")


def row(mode: str, name: str, count: int, side: int) -> str:
    """Measure one row of the table."""
    first, best = measure(FUNCTIONS[name], count, side)
    base = best["compiled"]
    extra = [memory_of(way, mode, name, count, side) for way in ("compiled", "one_call", "eager")]
    return (
        f"| {name} | {count} × {side}², {side * side / 2**18:g} MiB each | "
        f"{first:.2f} | {1000 * base:.1f} | "
        f"{best['eager'] / base:.1f} | {best['numpy'] / base:.1f} | "
        f"{' | '.join(f'{size:.1f}' for size in extra)} |"
    )


def table(mode: str) -> None:
    """Print the ratios, and what 1,000 weights take to compile."""
    print(f"MindSpore {ms.__version__}, {mode} mode, the best of {ROUNDS} rounds in turns.")
    print("Times in compiled updates, memory in MiB beside the weights, graphs included.\n")
    print("| function | weights | first call, s | compiled, ms | eager | NumPy |", end="")
    print(" memory: compiled | update_weights | eager |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count, side in SIZES:
        for name in FUNCTIONS:
            print(row(mode, name, count, side), flush=True)
    net = Weights(MANY, 8)
    first = seconds(compiled(net, times), net)
    print(f"\n{MANY} weights: WeightUpdates compiles in {first:.1f} s, ", end="")
    print(f"update_weights in {seconds(one_call(net, times), net):.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--memory", nargs=4, metavar=("WAY", "FUNCTION", "COUNT", "SIDE"))
    given = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE if given.mode == "graph" else ms.PYNATIVE_MODE)
    if given.memory:
        way, function, *sizes = given.memory
        memory(way, FUNCTIONS[function], *map(int, sizes))
    elif given.short:
        short()
    else:
        table(given.mode)
