"""The best epoch, early stopping, and stages that end when a metric stops improving."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest

import msgrad as mg
from msgrad.runs import load_config, train
from tests.runs.small_runs import Killed, config, eager, killed_after, values

TASK = """
from tests.nets.small_task import *
METRICS = {"score": "max"}
SCORES, DONE = [], 0


def evaluate(net, dataset):
    global DONE
    DONE += 1
    return {"score": SCORES[DONE - 1], "other": 0.0}
"""


def scored(scores, *changes, text="", done=0):
    """Build a run whose epochs score as given, whatever it trains."""
    Path("t.py").write_text(TASK)
    run = eager("task=t.py", f"epoch_size={len(scores)}", "batch_size=24", *changes, text=text)
    vars(run.task.module).update(SCORES=scores, DONE=done)
    return run


def every_epoch(run, seen):
    return lambda epoch: seen.append(values(run.net))


def assert_equal(one, other):
    assert {k: v.tolist() for k, v in one.items()} == {k: v.tolist() for k, v in other.items()}


def assert_near(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-5, atol=1e-7)


def read(path):
    return {k: v.asnumpy() for k, v in ms.load_checkpoint(str(path)).items()}


BESTS = [
    pytest.param([1.0, 3.0, 2.0], [], 2, id="max-of-the-task"),
    pytest.param([1.0, 3.0, 2.0], ["best={metric: score, mode: min}"], 1, id="min"),
    pytest.param([float("nan"), 0.5, float("nan")], [], 2, id="nan-is-never-best"),
    pytest.param([2.0, 2.0, 2.0], [], 1, id="the-first-of-equals"),
]


@pytest.mark.parametrize(("scores", "changes", "best"), BESTS)
def test_the_best_epoch_is_kept_beside_the_last(scores, changes, best):
    run, seen = scored(scores, *changes), []
    figures = train(run, report=every_epoch(run, seen))
    assert_equal(read("runs/c/best.ckpt"), seen[best - 1])
    assert_equal(read("runs/c/weights.ckpt"), seen[-1])
    assert figures.best is not None
    assert (figures.best["epoch"], figures.best["value"]) == (best, scores[best - 1])
    assert json.loads(Path("runs/c/figures.json").read_text())["best"]["epoch"] == best


@pytest.mark.parametrize("change", ["best=false", "best=null"])
def test_best_false_keeps_none_and_null_is_the_default(change):
    train(scored([1.0], change))
    assert Path("runs/c/best.ckpt").exists() == (change == "best=null")


def test_a_run_ends_where_its_metric_does_not_improve_and_brings_the_best_weights_back():
    stop = "early_stop={metric: score, patience: 2, restore_best: true}"
    run, seen = scored([1.0, 2.0, 1.5, 1.0, 9.0, 9.0], stop), []
    figures = train(run, report=every_epoch(run, seen))
    assert [epoch.epoch for epoch in figures.epochs] == [1, 2, 3, 4]
    assert figures.epochs[-1].notes == (
        "the run ends: score did not improve for 2 epochs, the best was 2 in epoch 2",
        "the weights are those of epoch 2 again",
    )
    assert_equal(read("runs/c/weights.ckpt"), seen[1])
    assert (seen[2]["head.weight"] != seen[1]["head.weight"]).any()
    with pytest.raises(mg.PlanError, match="the run ended at epoch 4: score did not improve for 2"):
        train(scored([1.0] * 6, stop), resume="runs/c")


def test_improvements_up_to_min_delta_do_not_count():
    run = scored([1.0, 1.05, 1.09, 9.0], "early_stop={metric: score, patience: 2, min_delta: 0.1}")
    assert len(train(run).epochs) == 3


UNTIL = """
stages:
- {train: head, until: {metric: score, patience: 2, restore_best: true}}
- {train: body, until: {metric: score, patience: 1}, epochs: 3}
- {train: '*'}
"""
SCORES = [1.0, 3.0, 2.0, 2.5, 5.0, 4.0, 4.0, 4.0]


def test_a_stage_ends_where_its_metric_does_not_improve_and_the_next_begins_with_its_best_weights():
    run, seen = scored(SCORES, text=UNTIL), []
    figures = train(run, report=every_epoch(run, seen))
    assert [epoch.stage for epoch in figures.epochs] == [1, 1, 1, 1, 2, 2, 3, 3]
    # epochs 3 and 4 were not better than 2, whose weights come back before the second stage
    assert_equal(seen[3], seen[1])
    assert (seen[2]["head.weight"] != seen[1]["head.weight"]).any()
    assert (seen[4]["head.weight"] == seen[1]["head.weight"]).all()
    assert (seen[4]["body.weight"] != seen[3]["body.weight"]).any()
    # the second does not ask for them
    assert (seen[5]["body.weight"] != seen[4]["body.weight"]).any()
    assert figures.epochs[3].notes[0].startswith("stage 1 ends: score did not improve for 2 epochs")


@pytest.mark.parametrize("epoch", [1, 3, 4, 5, 6])
def test_a_run_with_stages_that_a_metric_ends_is_exact_under_resume(epoch):
    whole = scored(SCORES, "name=whole", text=UNTIL)
    told = train(whole)
    with pytest.raises(Killed, match="after epoch"):
        train(scored(SCORES, text=UNTIL), report=killed_after(epoch))
    rest = scored(SCORES, text=UNTIL, done=epoch)
    figures = train(rest, resume="runs/c")
    assert_near(values(rest.net), values(whole.net))
    assert [e.stage for e in figures.epochs] == [e.stage for e in told.epochs][epoch:]
    assert figures.best == told.best
    assert_near(read("runs/c/best.ckpt"), read("runs/whole/best.ckpt"))


def test_a_stage_whose_metric_goes_on_improving_leaves_the_others_an_epoch_each():
    text = "stages: [{train: head, until: score}, {train: body, until: score}, {train: '*'}]"
    figures = train(scored([1.0, 2.0, 3.0, 4.0, 5.0], text=text))
    assert [epoch.stage for epoch in figures.epochs] == [1, 1, 1, 2, 3]


REFUSED = [
    pytest.param("best: scre", "metric 'scre' is no figure of an epoch .best.; did you mean "
                 "'score'?", id="misspelt"),
    pytest.param("early_stop: {metric: other}", "metric 'other' is no figure", id="not-named"),
    pytest.param("stages: [{train: head, until: scor}, {train: '*'}]",
                 "no figure of an epoch .until of stage 1.; did you mean 'score'?", id="until"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_metric_that_is_not_there_is_refused_before_the_first_step(text, message):
    run = scored([1.0, 2.0], text=text)
    with pytest.raises(mg.PlanError, match=message.replace("?", r"\?")):
        train(run)
    assert run.steps["train"].position.step == 0


KEYS = [
    pytest.param("best: 3", "best 3 names no metric; write accuracy, or {metric: accuracy}",
                 id="no"),
    pytest.param("early_stop: {metric: loss, monitor: loss}",
                 "key 'monitor' does not belong to early_stop; write metric", id="monitor"),
    pytest.param("stages: [{train: a, until: {metric: b, patience: 0}}, {train: b}]",
                 "patience 0 of until of stage 1 is below 1; give 1 or more", id="patience"),
    pytest.param("stages: [{train: a, until: b, steps: 3}, {train: b}]",
                 "stage 1 is counted in steps, and until looks at the end of an epoch", id="steps"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), KEYS)
def test_what_a_watch_cannot_be_is_told_at_its_line(text, message):
    with pytest.raises(mg.PlanError, match=rf"^c\.yaml:7: {re.escape(message)}"):
        config(text)


def test_the_keys_survive_the_resolved_config():
    text = "early_stop: {metric: loss, patience: 3}\nbest: false" + UNTIL
    one = config(text, "epoch_size=9")
    one.save("d/e.yaml")
    assert load_config("d/e.yaml").to_dict("d") == one.to_dict("d")


def test_a_schedule_of_ones_own_refuses_a_stage_that_nobody_would_end():
    run = scored([1.0] * 9, text=UNTIL)
    message = "stage 1 .* has until, and a schedule sees no metric"
    with pytest.raises(mg.ArgumentError, match=message):
        run.config.plan.schedule(run.steps["train"], epochs=9)
