"""The parallel modes: a step compiles to the collectives, kernels and memory of plain MindSpore.

Compiled as one rank of eight for Ascend; nothing runs, and no other rank answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from surroundings import DryRunError, dry_run

pytestmark = pytest.mark.ascend_dry
HALF, MOST = "layers.{0..4}", "layers.{0..3}"
SHARDED = "shards weights and optimizer state, which a new stage cannot take over"
SHARED_OUT = "leaves each rank the optimizer state of its share of the weights"


def compiled(ascend: dict[str, str], folder: Any, *arguments: str, rank: int = 0) -> Any:
    return dry_run("train_parallel.py", *arguments, variables=ascend, folder=folder, rank=rank)


@pytest.mark.parametrize(
    ("mode", "frozen", "rank", "collectives", "refused"),
    [
        # two AllReduces of five layers' gradients in all; each rank updates its share, and sends it
        pytest.param("data", HALF, 0, {"AllReduce": 2, "Broadcast": 8}, SHARED_OUT, id="data"),
        pytest.param("optimizer", HALF, 0, {}, SHARDED, id="optimizer"),
        pytest.param("tensor", HALF, 0, {}, SHARDED, id="tensor"),
        pytest.param("clip", HALF, 0, {}, SHARDED, id="clipped-over-shards"),
        pytest.param("class", HALF, 0, {}, SHARDED, id="class-auto-parallel"),
        pytest.param("pipeline", MOST, 0, {"Send": 4, "Receive": 4}, SHARDED, id="pipeline-front"),
        pytest.param("pipeline", MOST, 4, {"Send": 4, "Receive": 4}, SHARDED, id="pipeline-back"),
    ],
)
def test_a_step_is_that_of_plain_mindspore_and_a_second_stage_is_refused(
    ascend, tmp_path, mode, frozen, rank, collectives, refused
):
    found = {}
    for way in ("hand", "step"):
        (tmp_path / way).mkdir()
        found[way] = compiled(ascend, tmp_path / way, mode, frozen, way, rank=rank)
    hand, step = found["hand"], found["step"]
    told = step.pop("refused")
    hand.pop("refused")
    assert step == hand
    assert {name: step["collectives"][name] for name in collectives} == collectives
    assert sum(step["collectives"].values()) > 0
    save, change = told
    assert refused in change
    # alone in a dry run, a rank does not share the state of an optimizer out
    assert ("save with mindspore.save_checkpoint on every rank" in save) == (mode != "data")


def test_a_pipeline_stage_without_a_trained_weight_is_refused_on_every_rank(ascend, tmp_path):
    for rank in (0, 4):
        folder = tmp_path / str(rank)
        folder.mkdir()
        with pytest.raises(DryRunError, match="pipeline stage 0 would train none of its 10 para"):
            compiled(ascend, folder, "pipeline", HALF, "step", rank=rank)
