"""Evaluate the weights of a run on the data held out.

python scripts/eval.py --config configs/digits_freeze_conv1.yaml
"""

from __future__ import annotations

import argparse
import json
import sys

import msgrad as mg
from msgrad.runs import Config, build, evaluate, load_config


def read(arguments: argparse.Namespace) -> Config:
    """Return the config, with the weights of its own run where none are named.

    The checkpoint that the file names is what the run began with, and need not be there any more.
    """
    named = [change for change in arguments.set if change.partition("=")[0] == "ckpt_path"]
    if named and not arguments.ckpt_path:
        return load_config(arguments.config, arguments.set)
    config = load_config(arguments.config, [*arguments.set, "ckpt_path=null"])
    path = arguments.ckpt_path or str(config.weights)
    return load_config(arguments.config, [*arguments.set, f"ckpt_path={json.dumps(path)}"])


def run(arguments: argparse.Namespace) -> None:
    """Load, evaluate and print."""
    run = build(read(arguments))
    _, held_out = run.task.call("datasets", run.config)
    if held_out is None:
        raise mg.PlanError(f"task {run.task.name!r} holds no data out; return some in datasets()")
    figures = evaluate(run, held_out)
    if run.rank == 0:
        text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
        print(json.dumps(figures) if arguments.json else f"{run.config.ckpt_path}: {text}")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Evaluate weights on the data held out.")
    parser.add_argument("--config", required=True, help="a YAML file, see configs/")
    parser.add_argument(
        "--ckpt_path", help="the weights; those that the run of the config left by default"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="change keys of the config"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")
    try:
        run(parser.parse_args())
    except (mg.MsgradError, OSError) as error:
        sys.exit("\n".join(f"eval.py: {line}" for line in str(error).splitlines()))


if __name__ == "__main__":
    main()
