"""Train as a config says, and show which weights moved.

python scripts/train.py --config configs/digits_freeze_conv1.yaml --set epoch_size=3 --show conv1
"""

from __future__ import annotations

import argparse
import sys

try:
    from rich.console import Console

    import msgrad as mg
    from msgrad.cli import Progress
    from msgrad.runs import build, load_config, train
    from report import draw, verdict, weights_table
except ImportError as error:
    sys.exit(f"train.py needs {error.name}, which is not installed; pip install -e '.[tools]'")


def run(arguments: argparse.Namespace) -> bool:
    """Train and print; return whether all that was held kept its bits."""
    run = build(load_config(arguments.config, arguments.set))
    shown = mg.select(run.net, *arguments.show) if arguments.show else ()
    first = {weight.name: weight.asnumpy().copy() for weight in shown}
    console = Console(highlight=False)
    if run.rank == 0:
        console.rule(str(run))
    figures = train(
        run,
        resume=arguments.resume,
        overwrite=arguments.overwrite,
        report=print,
        tick=Progress(),
    )
    if run.rank == 0:
        for weight in shown:
            if len(weight.shape) == 4:
                console.print(weights_table(first[weight.name], weight.asnumpy()))
            console.print(verdict(figures.movement, weight.name), style="bold")
        draw(run.config.save_dir / "layers.png", figures, run.config.name)
        print(figures)
    return not figures.broken


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Train as a config says.")
    parser.add_argument("--config", required=True, help="a YAML file, see configs/")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="change keys of the config"
    )
    used = parser.add_mutually_exclusive_group()
    used.add_argument("--resume", metavar="PATH", help="the ckpt_save_dir of a run to go on with")
    used.add_argument("--overwrite", action="store_true", help="clear what an earlier run left")
    parser.add_argument(
        "--show", nargs="+", default=[], metavar="PATTERN", help="print these weights too"
    )
    try:
        kept = run(parser.parse_args())
    except (mg.MsgradError, OSError) as error:
        sys.exit("\n".join(f"train.py: {line}" for line in str(error).splitlines()))
    sys.exit(0 if kept else "train.py: a weight that is held has moved")


if __name__ == "__main__":
    main()
