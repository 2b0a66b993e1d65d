"""What the benchmarks share: ways timed in turns, ratios with their spread, operators, a table."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msgrad.backend import called_graph

# what only orders or loads, and differs between two equal programs
_ORDER = {"Load", "UpdateState", "Depend", "MakeTuple"}
LEAST = 0.1  # seconds of one timing


@dataclass(frozen=True)
class Ratio:
    """A ratio of two ways, each round against the other way in the same round."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} – {self.high:.3f})"


def in_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int, *, warm: int = 1
) -> dict[str, list[float]]:
    """Time each way once per round, the order turned round every time; seconds."""
    names = list(ways)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warm, rounds):
        for name in names if number % 2 else reversed(names):
            time_of_one = seconds(ways[name])
            if number >= 0:
                found[name].append(time_of_one)
    return found


def ratio(times: Mapping[str, Sequence[float]], one: str, other: str) -> Ratio:
    """Compare two ways round by round: the median ratio and its quartiles."""
    each = sorted(a / b for a, b in zip(times[one], times[other], strict=True))
    if len(each) < 2:
        return Ratio(each[0], each[0], each[0])
    low, median, high = statistics.quantiles(each, n=4, method="inclusive")
    return Ratio(median, low, high)


def milliseconds(times: Sequence[float]) -> str:
    """Write the median of some times."""
    return f"{1000 * statistics.median(times):.2f}"


def waits(call: Callable[..., Any], *inputs: Any) -> Callable[[], object]:
    """Return a call that is done when its result is there."""

    def wait() -> None:
        out = call(*inputs)
        first = out[0] if isinstance(out, tuple) else out
        first.asnumpy()

    return wait


def compiled_in_turns(
    sides: Mapping[str, Callable[[], nn.Cell]], inputs: Sequence[Tensor], rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[nn.Cell]]]:
    """Make, compile and run a step of each side in turns; the seconds, and the steps made.

    The first of each is left aside: what a process compiles first runs 3 to 4 % faster.
    """
    made: dict[str, list[nn.Cell]] = {side: [] for side in sides}

    def one(side: str) -> None:
        made[side].append(sides[side]())
        waits(made[side][-1], *inputs)()

    times = in_turns({side: partial(one, side) for side in sides}, rounds)
    return times, {side: steps[1:] for side, steps in made.items()}


def steps_in_turns(
    made: Mapping[str, Sequence[nn.Cell]], inputs: Sequence[Tensor], rounds: int
) -> dict[str, list[float]]:
    """Time all steps of each side together, in turns: where one lies in memory makes 5 %.

    Each runs so often that a timing takes a tenth of a second or more; seconds of one step.
    """
    calls = {side: [waits(step, *inputs) for step in steps] for side, steps in made.items()}
    first = next(iter(calls.values()))
    again = 1 + int(LEAST / len(first) / seconds(first[0]))

    def run(side: str) -> None:
        for call in calls[side]:
            for _ in range(again):
                call()

    times = in_turns({side: partial(run, side) for side in calls}, rounds)
    return {side: [t / again / len(first) for t in found] for side, found in times.items()}


def seconds(call: Callable[[], object]) -> float:
    """Time one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def operators(cell: nn.Cell) -> Counter[str]:
    """Count the operators of the graph that the last call of a cell compiled."""
    counts = called_graph(cell).operators
    # a multiplication by a constant and one by a number that can be set later cost the same
    counts["Mul"] += counts.pop("Muls", 0)
    return Counter({name: n for name, n in counts.items() if name not in _ORDER})


def difference(one: Counter[str], other: Counter[str]) -> str:
    """Say by which operators two graphs differ."""
    names = sorted(name for name in one | other if one[name] != other[name])
    return ", ".join(f"{name} {one[name]}/{other[name]}" for name in names) or "none"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table, each row as soon as it is there."""
    print(f"| {' | '.join(headers)} |")
    print("|" + "---|" * len(headers), flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print()


def heading(document: str | None) -> None:
    """Print the claim, the first line of a benchmark's docstring, and what it is measured on."""
    claim = (document or "").partition("\n")[0]
    target = ms.get_current_device().device_target
    print(f"{claim}\nMindSpore {ms.__version__}, {target}, GRAPH_MODE.\n", flush=True)


def random(*shape: int, seed: int = 0) -> Tensor:
    """Return normal random numbers, float32."""
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def counted(what: object, reached: object, *, name: str) -> None:
    """Check what a short form counts.

    Raises:
        AssertionError: It is another number.
    """
    if what != reached:
        raise AssertionError(f"{name}: {what!r}, not {reached!r}")


def is_short(document: str | None) -> bool:
    """Read the command line of a benchmark: whether only to count."""
    parser = argparse.ArgumentParser(description=(document or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="count only, measure no time")
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(0)
    return parser.parse_args().short
