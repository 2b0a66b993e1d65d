"""A dry run: a config trained for Ascend as `msgrad train` does, from data to files.

python train_config.py CONFIG [KEY=VALUE...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from msgrad.runs import build, load_config, train
from surroundings import RESULT


def main(path: str, *changes: str) -> None:
    """Train, and write what the run said of itself."""
    run = build(load_config(path, ("device_target=Ascend", "distribute=true", *changes)))
    figures = train(run)
    (step,) = run.steps.values()
    result = {
        "sink": run.config.dataset_sink_mode,
        "stages": [len(names) for names in step.stages],
        "trained": [epoch.trainable["train"] for epoch in figures.epochs],
        "position": list(step.position),
        "files": sorted(file.name for file in run.config.save_dir.iterdir()),
    }
    Path(RESULT).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
