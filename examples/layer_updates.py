"""Each layer's weights are changed by a function of their own, and the gradient does not notice.

python examples/layer_updates.py
python examples/layer_updates.py --set when=after_step updates.fc2=grow
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

import msgrad as mg

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from config import load_config, nearest

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "mlp_layer_updates.yaml"
LAYERS = ("fc1", "fc2", "fc3")


def grow(w: Tensor) -> Tensor:
    return w + 1e-3 * w


def shrink(w: Tensor) -> Tensor:
    return 1e-2 * w


def lessen(w: Tensor) -> Tensor:
    return w - 1e-1 * w


FUNCTIONS = {"grow": grow, "shrink": shrink, "lessen": lessen}


@dataclass(frozen=True)
class Functions:
    """The name of each layer's function."""

    fc1: str = "grow"
    fc2: str = "shrink"
    fc3: str = "lessen"


@dataclass(frozen=True)
class Config:
    """One run."""

    name: str = "mlp_layer_updates"
    mode: str = "graph"
    device_target: str = "auto"
    seed: int = 1
    steps: int = 2
    learning_rate: float = 0.1
    when: str = "before_forward"
    updates: Functions = field(default_factory=Functions)


class Mlp(nn.Cell):
    """Three layers: one input, two and three hidden units, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(1, 2)
        self.fc2 = nn.Dense(2, 3)
        self.fc3 = nn.Dense(3, 1)

    def construct(self, x: Tensor) -> Tensor:
        return self.fc3(ops.tanh(self.fc2(ops.tanh(self.fc1(x)))))


def function(name: str) -> Callable[[Tensor], Tensor]:
    """Return the function that a config names."""
    if name not in FUNCTIONS:
        raise mg.PlanError(f"function {name!r} is unknown; {nearest(name, FUNCTIONS)}")
    return FUNCTIONS[name]


def show(net: nn.Cell, title: str) -> None:
    """Print the parameters of each layer as a vector."""
    print(title)
    for layer in LAYERS:
        vector = mg.parameters_to_vector(mg.select(net, layer)).asnumpy()
        print(f"  {layer} " + " ".join(f"{number:+.6f}" for number in vector))


def run(config: Config) -> None:
    """Change the weights by hand, then within steps, then within one step per example."""
    ms.set_seed(config.seed)
    net = Mlp()
    rules = {layer: function(getattr(config.updates, layer)) for layer in LAYERS}
    show(net, "before the functions")
    mg.update_weights(net, rules)
    show(net, "after the functions")

    updates = mg.WeightUpdates(net, rules, when=config.when)
    step = mg.TrainStep(
        net, lambda p: nn.SGD(p, config.learning_rate), nn.MSELoss(), updates=updates
    ).set_train()

    def shown(x: Tensor, y: Tensor) -> Tensor:
        show(net, f"before update {int(updates.step)}")
        loss = step(x, y)
        show(net, f"after update {int(updates.step) - 1}, loss {float(loss):.6f}")
        return loss

    x = np.linspace(-1, 1, 4, dtype=np.float32)[:, None]
    y = x**2
    for _ in range(config.steps):
        shown(Tensor(x), Tensor(y))
    losses = mg.each_sample(shown, Tensor(x), Tensor(y))
    print("losses of the examples", " ".join(f"{loss:.6f}" for loss in losses.asnumpy()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(CONFIG))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    settings = load_config(given.config, given.set, Config)
    mg.use_device(settings.device_target, mode=settings.mode)
    run(settings)
