"""Train the digits network as a config says, and show which of its weights moved.

python scripts/train.py --config configs/digits_freeze_conv1.yaml --set epoch_size=3
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

try:
    import mindspore as ms
    from mindspore import Tensor, nn
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    import msgrad as mg
    from config import Config, load_config, nearest
    from digits import DigitsNet, digits_dataset, load_digits
    from report import save_run, verdict, weights_table
except ImportError as error:
    sys.exit(f"train.py needs {error.name}, which is not installed; pip install -e '.[tools]'")


def make_optimizer(config: Config) -> Callable[[list[ms.Parameter]], nn.Optimizer]:
    """Return what builds the config's optimizer over a list of parameters."""
    wanted = config.optimizer
    kinds = [name for name in nn.__all__ if isinstance(getattr(nn, name), type)]
    kinds = [name for name in kinds if issubclass(getattr(nn, name), nn.Optimizer)]
    if wanted.name not in kinds:
        meant = nearest(wanted.name, kinds)
        raise mg.PlanError(f"optimizer.name {wanted.name!r} is not in mindspore.nn; {meant}")
    return lambda parameters: getattr(nn, wanted.name)(
        parameters, learning_rate=wanted.learning_rate, weight_decay=wanted.weight_decay
    )


def make_step(net: DigitsNet, config: Config) -> nn.Cell:
    """Hold what the config holds, and return the cell that trains the rest."""
    optimizer = make_optimizer(config)
    loss_fn = nn.CrossEntropyLoss()
    if config.stop_by_hand:
        step = nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer(net.trainable_params()))
        return step.set_train()
    if config.stop:
        mg.stop_gradient(net, *config.stop)
    if config.freeze:
        mg.freeze(net, *config.freeze)
    return mg.TrainStep(net, optimizer, loss_fn).set_train()


def accuracy(net: nn.Cell, images: Tensor, labels: Tensor) -> float:
    """Return the fraction of images whose highest score is that of their digit."""
    net.set_train(False)
    right = net(images).argmax(axis=1) == labels
    net.set_train(True)
    return int(right.sum().asnumpy()) / len(labels)


def train(net: nn.Cell, step: nn.Cell, config: Config, console: Console) -> list[dict[str, float]]:
    """Run the epochs and return the loss and the held-out accuracy of each."""
    train_part, held_out = load_digits()
    batches = digits_dataset(*train_part, config.batch_size, shuffle=True)
    images, labels = map(Tensor, held_out)
    epochs = []
    with progress_bar(console) as bar:
        task = bar.add_task("compiling", total=config.epoch_size * batches.get_dataset_size())
        for epoch in range(1, config.epoch_size + 1):
            where = f"epoch {epoch:2}/{config.epoch_size}"
            losses = []
            for image, label in batches.create_tuple_iterator(num_epochs=1):
                losses.append(float(step(image, label).asnumpy()))
                bar.update(task, advance=1, description=where)
            mean, right = sum(losses) / len(losses), accuracy(net, images, labels)
            epochs.append({"loss": mean, "accuracy": right})
            console.print(f"{where}  loss {mean:.4f}  accuracy {right:.3f}", highlight=False)
    return epochs


def progress_bar(console: Console) -> Progress:
    """Return a bar that counts steps; it draws nothing where the output is not a terminal."""
    description = TextColumn("{task.description}")
    columns = description, BarColumn(), MofNCompleteColumn(), TextColumn("steps")
    hidden = not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden)


def run(config: Config, console: Console) -> bool:
    """Train, print, write `runs/<name>/`; return whether all that was held kept its bits."""
    device = mg.use_device(config.device_target, mode=config.mode)
    ms.set_seed(config.seed)
    net = DigitsNet(stop_by_hand=config.stop_by_hand)
    everything, conv1 = mg.Snapshot(net), mg.Snapshot(net, "conv1")
    first = net.conv1.weight.asnumpy().copy()
    step = make_step(net, config)
    console.rule(f"{config.name} on {device}, {config.mode} mode")
    epochs = train(net, step, config, console)

    movement = everything.compare()
    trainable = [p.name for p in net.get_parameters()] if config.stop_by_hand else step.trainable
    held = [row.name for row in movement.rows if row.name not in trainable]
    console.print(weights_table(first, net.conv1.weight.asnumpy()), highlight=False)
    console.print(verdict(conv1.compare()), style="bold", highlight=False)
    folder = Path("runs", config.name)
    figures = {"device": device, "mindspore": ms.__version__, "epochs": epochs}
    save_run(folder, config, movement, held, figures)
    console.print(f"wrote {folder}/layers.png, figures.json, config.yaml", highlight=False)
    return not set(held) & set(movement.moved)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Train the digits as a config says.")
    parser.add_argument("--config", required=True, help="a YAML file, see configs/")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="change keys of the config"
    )
    args = parser.parse_args()
    try:
        kept = run(load_config(args.config, args.set), Console())
    except mg.MsgradError as error:
        sys.exit(f"train.py: {error}")
    sys.exit(0 if kept else "train.py: a weight that is held has moved")


if __name__ == "__main__":
    main()
