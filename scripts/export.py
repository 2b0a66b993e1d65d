"""Write the network of a run with its weights as MINDIR, for inference.

python scripts/export.py --config configs/digits_freeze_conv1.yaml --file_name digits
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import mindspore as ms

import msgrad as mg
from eval import read
from msgrad.runs import build


def run(arguments: argparse.Namespace) -> None:
    """Load and export."""
    run = build(read(arguments), data=False)
    batch = run.task.call("inputs", run.config)
    # where the task has a loss, the last input is the label, which inference has not
    inputs = batch[:-1] if run.task.has("loss") or run.config.steps else batch
    name = arguments.file_name or str(run.config.save_dir / run.config.name)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    ms.export(run.net.set_train(False), *inputs, file_name=name, file_format="MINDIR")
    shapes = ", ".join(str(tuple(each.shape)) for each in inputs)
    if run.rank == 0:
        print(f"wrote {Path(name).with_suffix('.mindir')}, for inputs of {shapes}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Write a network with its weights as MINDIR.")
    parser.add_argument("--config", required=True, help="a YAML file, see configs/")
    parser.add_argument(
        "--ckpt_path", help="the weights; those that the run of the config left by default"
    )
    parser.add_argument("--file_name", help="file to write, without the ending .mindir")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="change keys of the config"
    )
    try:
        run(parser.parse_args())
    except (mg.MsgradError, OSError) as error:
        sys.exit("\n".join(f"export.py: {line}" for line in str(error).splitlines()))


if __name__ == "__main__":
    main()
