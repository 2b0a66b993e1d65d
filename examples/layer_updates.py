"""Each layer's weights are changed by a function of their own, and the gradient does not notice.

python examples/layer_updates.py
python examples/layer_updates.py --set updates.when=after_step optimizer.learning_rate=0.2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mindspore import Tensor, nn

import msgrad as mg
from msgrad.runs import Run, build, load_config

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tasks"))
from mlp import X, Y, grow, lessen, shrink

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "mlp_layer_updates.yaml"
LAYERS = ("fc1", "fc2", "fc3")


def show(net: nn.Cell, title: str) -> None:
    """Print the parameters of each layer as a vector."""
    print(title)
    for layer in LAYERS:
        vector = mg.parameters_to_vector(mg.select(net, layer)).asnumpy()
        print(f"  {layer} " + " ".join(f"{number:+.6f}" for number in vector))


def by_hand(net: nn.Cell) -> None:
    """Change the weights now, by functions of tasks/mlp.py."""
    show(net, "before the functions")
    mg.update_weights(net, {"fc1": grow, "fc2": shrink, "fc3": lessen})
    show(net, "after the functions")


def by_steps(run: Run) -> None:
    """Change them within steps over the whole batch, then within one step per example."""
    step = run.steps["train"]
    (updates,) = step.updates

    def shown(x: Tensor, y: Tensor) -> Tensor:
        show(run.net, f"before update {int(updates.step)}")
        loss = step(x, y)
        show(run.net, f"after update {int(updates.step) - 1}, loss {float(loss):.6f}")
        return loss

    for _ in range(run.config.epoch_size):
        shown(Tensor(X), Tensor(Y))
    losses = mg.each_sample(shown, Tensor(X), Tensor(Y))
    print("losses of the examples", " ".join(f"{loss:.6f}" for loss in losses.asnumpy()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(CONFIG))
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    run = build(load_config(given.config, given.set))
    by_hand(run.net)
    by_steps(run)
