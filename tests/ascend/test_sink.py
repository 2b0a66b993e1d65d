"""`Model.train` with a data sink through stages: no CPU has one, so this runs dry for Ascend."""

from __future__ import annotations

from collections import Counter

import pytest

from graphs import read_launches
from surroundings import ROOT, dry_run

pytestmark = pytest.mark.ascend_dry

BODY, MIDDLE, HEAD = (
    [f"{layer}.{kind}" for kind in ("weight", "bias")] for layer in ("0", "2", "4")
)
# What each sink is to train, see train_with_sink.py: two of the first stage, one of each other,
# and one after a callback of the user's froze the head.
CALLS = [HEAD, HEAD, MIDDLE + HEAD, HEAD, BODY + HEAD, BODY + MIDDLE + HEAD, BODY + MIDDLE]
# Going back compiles nothing.
GRAPHS_AT = [1, 1, 2, 2, 3, 4, 5]
COMPILED = [HEAD, MIDDLE + HEAD, BODY + HEAD, BODY + MIDDLE + HEAD, BODY + MIDDLE]
UPDATE = "AdamApplyOneWithDecayAssign"  # what the back end makes of one weight's AdamWeightDecay


@pytest.fixture(
    scope="module",
    params=[("epochs", -1, 8), ("steps", 4, 4)],
    ids=["stages-in-epochs-whole-epochs-sunk", "stages-in-steps-half-epochs-sunk"],
)
def run(request, ascend, tmp_path_factory):
    """What the program wrote, the launches, and the steps of one sink."""
    unit, sink_size, steps = request.param
    folder = tmp_path_factory.mktemp("sink")
    result = dry_run("train_with_sink.py", unit, str(sink_size), variables=ascend, folder=folder)
    return result, read_launches(folder, "GetNext"), steps


def test_every_sink_goes_through_the_wrapper_that_no_cpu_has(run):
    assert [call["wrapped"] for call in run[0]["calls"]] == [True] * len(CALLS)


def test_the_step_is_in_the_stage_of_each_sink_and_so_is_the_optimizer_of_the_callbacks(run):
    assert [call["trainable"] for call in run[0]["calls"]] == CALLS
    assert [call["in_optimizer"] for call in run[0]["calls"]] == CALLS


def test_each_stage_has_one_graph_which_writes_and_reduces_what_it_trains_and_no_more(run):
    result, _, _ = run
    assert [call["graphs"] for call in result["calls"]] == GRAPHS_AT
    assert result["written"] == [sorted(names) for names in COMPILED]
    assert result["all_reduce"] == [len(names) for names in COMPILED]


def test_what_is_launched_at_each_sink_is_the_graph_of_its_stage(run):
    launches: list[Counter[str]] = run[1]
    assert [launch["AllReduce"] for launch in launches] == [len(names) for names in CALLS]
    assert [launch[UPDATE] for launch in launches] == [len(names) for names in CALLS]


def test_the_steps_of_a_sink_are_counted_though_the_step_is_never_called(run):
    result, _, steps = run
    counted = [call["steps"] for call in result["calls"]]
    # noted by a callback that comes before the schedule
    assert counted == [steps * sinks for sinks in range(len(CALLS))]


SMALL = ("task_args.blocks=[1,1,1,1]", "task_args.width=8", "task_args.image_size=32")
SHORT = ("epoch_size=4", "batch_size=4", "stages.0.epochs=1", "stages.1.epochs=1")


def test_a_config_with_data_sink_trains_each_stage_in_a_graph_of_its_own(ascend, tmp_path):
    config = str(ROOT / "configs" / "resnet50_cifar10_ascend.yaml")
    changes = (*SMALL, *SHORT, "task_args.random_rows=8")
    result = dry_run("train_config.py", config, *changes, variables=ascend, folder=tmp_path)
    assert result["sink"]
    assert result["stages"] == [2, 14, 53]
    assert result["trained"] == [2, 14, 53, 53]
    assert result["position"] == [8, 4]  # steps, epochs
    assert result["files"] == ["best.ckpt", "config.yaml", "figures.json", "last", "weights.ckpt"]
    launches = read_launches(tmp_path, "GetNext")
    assert [launch["AllReduce"] for launch in launches] == result["trained"]
