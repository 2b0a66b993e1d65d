"""What MindSpore wrote of a dry run, as data: the graphs of its back end, and what it launched."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NODE = re.compile(
    r"^  %\d+\([^)]*\) = (?:PrimFunc_)?(\w+)\((.*?)\)(?: \{| primitive_attrs|$)", re.M
)
PARAMETER = re.compile(r"%para\d+_([^,\s)]+)")
NUMBER = re.compile(r"graph_build_\d+_(\d+)\.ir$")
# These take a parameter to order what reads and writes it; they are no kernels.
ORDERING = {"Load", "UpdateState", "MakeTuple", "Depend", "Return"}
ALL_REDUCE = "AllReduce"


@dataclass(frozen=True)
class KernelGraph:
    """A graph as the back end left it.

    Attributes:
        operators: How often each kernel occurs.
        written: The parameters that a kernel takes as they are, to write them; what is only read
            is loaded first.
    """

    operators: Counter[str]
    written: frozenset[str]

    @property
    def kernels(self) -> int:
        """The number of kernels."""
        return sum(self.operators.values())


def graph_files(folder: Path) -> list[Path]:
    """List the graphs that the back end has built so far, in order."""
    found = {file: NUMBER.search(file.name) for file in folder.glob("**/graph_build_*.ir")}
    numbers = {file: int(number[1]) for file, number in found.items() if number}
    return sorted(numbers, key=numbers.__getitem__)


def read_graphs(files: Iterable[Path]) -> KernelGraph:
    """Read graphs as one: a network with an `if` on a tensor is built in pieces."""
    operators: Counter[str] = Counter()
    written: set[str] = set()
    for file in files:
        for operator, inputs in NODE.findall(file.read_text(encoding="utf-8")):
            if operator not in ORDERING:
                operators[operator] += 1
                written.update(PARAMETER.findall(inputs))
    return KernelGraph(operators, frozenset(written))


def read_launches(folder: Path, first: str) -> list[Counter[str]]:
    """Count the kernels that ran, in order, anew wherever `first` comes.

    MindSpore writes the file when the process ends.
    """
    launches: list[Counter[str]] = []
    (file,) = folder.glob("**/execute_order.csv")
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            operator = row["node_name"].rsplit("/", 1)[-1].rsplit("-op", 1)[0]
            if operator == first:
                launches.append(Counter())
            if launches:
                launches[-1][operator] += 1
    return launches
