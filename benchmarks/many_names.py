"""Choosing by name is linear in the names: 100,000 parameters and ten patterns in a second.

python benchmarks/many_names.py            times
python benchmarks/many_names.py --short    what is chosen only
"""

from __future__ import annotations

import time

from measure import counted, heading, is_short, table
from mindspore import Parameter, Tensor, nn

import msgrad as mg

SIZES = (1_000, 10_000, 100_000)
PATTERNS = (
    "*.bias",
    "layers.{0..9}",
    "!layers.5",
    "layers.*.{q,v}_proj",
    r"re:.*\.norm\d\.gamma",
    "layers.*.mlp.*",
    "!*.mlp.*.bias",
    "layers.1",
    "*.q_proj.weight",
    "*norm*",
)
PARTS = ("q_proj.weight", "q_proj.bias", "mlp.up.weight", "mlp.up.bias", "norm1.gamma")


class Named(nn.Cell):
    """A cell with many parameters and no other cells."""

    def __init__(self, count: int) -> None:
        super().__init__()
        one = Tensor([0.0])
        for number in range(count):
            layer, part = divmod(number, len(PARTS))
            name = f"layers.{layer}.{PARTS[part]}"
            self._params[name] = Parameter(one, name=name)


def chosen(net: nn.Cell) -> tuple[float, int]:
    """Choose by all patterns; processor seconds, and how many."""
    begun = time.process_time()
    found = mg.select(net, *PATTERNS)
    return time.process_time() - begun, len(found)


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    rows = []
    for size in SIZES[:1] if short else SIZES:
        net = Named(size)
        times, counts = zip(*(chosen(net) for _ in range(1 if short else 3)), strict=True)
        # of five parts of a layer all but the bias of the MLP are chosen, which layer 1 has back
        counted(counts[0], size // 5 * 4 + 1, name=f"chosen of {size}")
        rows.append([f"{size:,}", counts[0], f"{min(times):.3f}", f"{1e6 * min(times) / size:.1f}"])
    if short:
        return table(["parameters", "chosen"], [row[:2] for row in rows])
    table(["parameters", "chosen", "seconds", "µs per parameter"], rows)
    return None


if __name__ == "__main__":
    main(short=is_short(__doc__))
