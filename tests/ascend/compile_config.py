"""A dry run: each train step of a config, in each of its stages, compiled for Ascend.

python compile_config.py CONFIG [KEY=VALUE...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms

from graphs import ALL_REDUCE, graph_files, read_graphs
from msgrad.freezing import records_of
from msgrad.runs import Run, build, load_config
from msgrad.runs._build import each_stage
from msgrad.training import TrainStep
from surroundings import GRAPHS, RESULT


def compile_stages(run: Run) -> Iterator[dict[str, Any]]:
    """Go through the stages as a run does, and compile and launch each step once."""
    batch = run.task.call("inputs", run.config)
    for stage in each_stage(run):
        for name, step in run.steps.items():
            yield {"step": name, "stage": stage, **compiled(run, step, batch)}


def compiled(run: Run, step: TrainStep, batch: tuple[Any, ...]) -> dict[str, Any]:
    """Say what the next call of a step compiles to, in kernels, weights and bytes."""
    step.prepare(*batch)  # looks for what no gradient reaches, in a graph of its own
    before = len(graph_files(Path(GRAPHS)))
    ms.runtime.reset_peak_memory_stats()
    step(*batch)
    graph = read_graphs(graph_files(Path(GRAPHS))[before:])
    weights = {r.parameter.name for r in records_of(run.net).values() if r.can_train}
    return {
        "trained": step.trainable,
        "updated": sorted({name for update in step.updates for name in update.names}),
        "written": sorted(graph.written & weights),
        "kernels": graph.kernels,
        "all_reduce": graph.operators[ALL_REDUCE],
        "peak": ms.runtime.max_memory_allocated(),
    }


def main(path: str, *changes: str) -> None:
    """Compile a config and write what came out."""
    asked = ("device_target=Ascend", "distribute=true", *changes)
    config = load_config(path, asked)
    # a dry run reads no files, and its weights are zeros
    run = build(replace(config, ckpt_path=None, data_dir=None))
    rows = list(compile_stages(run))
    Path(RESULT).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
