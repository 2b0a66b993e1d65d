"""A run that goes on: as if it had never been stopped, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import msgrad as mg
from msgrad.runs import _saves, build, first_batch, train
from tests.runs.small_runs import (
    BODY,
    EAGER,
    FREEZE,
    HEAD,
    STEPS,
    Killed,
    assert_close,
    config,
    killed_after,
    values,
)

STAGED = "plan: [{freeze: body.bias}]\nstages: [{train: head, epochs: 1}, {train: the rest}]"
RESUMED = [
    pytest.param("stages: [{train: head, epochs: 1}, {train: '*'}]", id="stages"),
    pytest.param(f"{STEPS}mode: pynative\nunreached: allow", id="two-steps-eager"),
]


@pytest.mark.parametrize("text", RESUMED)
def test_a_run_that_is_killed_and_resumed_equals_one_that_is_not(text):
    """Weights, optimizer state, the order of the batches, the stage, what is reported."""
    whole = build(config(text, "epoch_size=3", "name=whole"))
    told = train(whole).epochs
    first = build(config(text, "epoch_size=3", "name=parts"))
    with pytest.raises(Killed, match="after epoch"):
        train(first, report=killed_after(1))
    second = build(config(text, "epoch_size=3", "name=parts"))
    figures = train(second, resume="runs/parts")
    assert_close(values(second.net), values(whole.net))
    for name in whole.steps:
        # the state too, and it is not that of a fresh start
        assert_close(values(second.steps[name].optimizer), values(whole.steps[name].optimizer))
    assert [e.epoch for e in figures.epochs] == [2, 3]
    for done, expected in zip(figures.epochs, told[1:], strict=True):
        assert done.losses == pytest.approx(expected.losses, rel=1e-4)
        assert (done.stage, done.steps, done.trainable) == (
            expected.stage, expected.steps, expected.trainable
        )  # fmt: skip


def test_stages_train_what_they_say_and_no_more():
    run = build(config(STAGED, *EAGER))
    first, seen = values(run.net), []
    figures = train(run, report=lambda epoch: seen.append(values(run.net)))
    moved = [{n for n in first if (seen[k][n] != first[n]).any()} for k in range(2)]
    assert moved == [HEAD, HEAD | {"body.weight"}]
    assert [(e.stage, e.trainable["train"]) for e in figures.epochs] == [(1, 2), (2, 1)]
    # what a later stage holds again is no weight that was held all along
    assert figures.held == ("body.bias",)
    assert (seen[1]["head.weight"] == seen[0]["head.weight"]).all()


def test_a_frozen_weight_that_a_rule_changes_is_not_one_that_was_held():
    updates = "updates: [{update: body.bias, fn: clip, args: [0.0, 0.0], force: true}]"
    run = build(config(f"{FREEZE}\n{updates}", "epoch_size=1", *EAGER))
    figures = train(run)
    assert not run.net.body.bias.asnumpy().any()
    assert (figures.held, figures.broken) == (("body.weight",), [])


def test_data_without_a_batch_are_named_and_nothing_is_left():
    run = build(config(FREEZE, *EAGER, "batch_size=100"))
    message = (
        r"datasets\(\) of task '.*small_task.py' gives no batch; lower batch_size 100, or mend"
    )
    with pytest.raises(mg.PlanError, match=message):
        train(run)
    assert not Path("runs").exists()
    batch, why = first_batch(run)
    assert batch[0].shape == (100, 4)
    assert "gives no batch" in str(why)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param("optimizer.beta1=2", "optimizer AdamWeightDecay refuses its keywords", id="o"),
        pytest.param(
            "optimizer.learning_rate={name: CosineDecayLR, min_lr: 1, max_lr: 2.0, decay_steps: 3}",
            "schedule CosineDecayLR refuses its keywords: .*'min_lr'",
            id="schedule",
        ),
    ],
)
def test_keywords_that_mindspore_refuses_are_a_fault_of_the_config(change, message):
    with pytest.raises(mg.PlanError, match=message):
        build(config(FREEZE, *EAGER, change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "plan: [{freeze: head}]", "holds head.weight, which the save trains", id="other"
        ),
        pytest.param("", "under another plan: 'body.weight' is held in it and not in", id="none"),
        pytest.param(
            "plan: [{freeze: body}, {freeze: head.bias}]",
            "holds head.bias, which the save trains",
            id="more",
        ),
    ],
)
def test_a_save_under_another_plan_is_not_resumed(text, message):
    train(build(config(FREEZE, *EAGER)))
    run = build(config(text, *EAGER, "epoch_size=3"))
    with pytest.raises(mg.CheckpointError, match=message):
        train(run, resume="runs/c")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param("optimizer.learning_rate=0", "optimizer of", id="rate"),
        pytest.param("optimizer.name=AdaMax", "optimizer of", id="optimizer"),
        pytest.param("plan.1={group: head, lr_scale: 0}", "plan, a group rule of", id="group"),
    ],
)
def test_rates_that_the_save_would_override_are_refused(change, what):
    train(build(config(FREEZE, *EAGER)))
    run = build(config(FREEZE, *EAGER, "epoch_size=3", change))
    first = values(run.net)
    with pytest.raises(mg.CheckpointError, match=f"brings its own rates, and {what} the config is"):
        train(run, resume="runs/c/last")
    assert_close(values(run.net), first)


def test_the_freeze_of_a_save_may_stand_elsewhere_in_the_file():
    train(build(config(FREEZE, *EAGER)))
    run = build(config("plan:\n- freeze: body.weight\n- freeze: body.bias", *EAGER, "epoch_size=3"))
    first = values(run.net)
    train(run, resume="runs/c")
    assert run.steps["train"].trainable == ["head.weight", "head.bias"]
    assert first.keys() == BODY | HEAD


def test_a_run_at_its_end_is_not_resumed():
    run = build(config(FREEZE))
    run.steps["train"].set_epoch(2)
    _saves.save_steps(run.config.save_dir, run.steps)
    message = r"resume 'runs/c' is at the end, epoch 2 of 2; give a larger epoch_size to go on"
    with pytest.raises(mg.PlanError, match=message):
        train(run, resume="runs/c")


@pytest.fixture
def two_saves():
    """A run with two steps, saved at epochs 1 and 2; the folder of its saves."""
    run = build(config(STEPS))
    for epoch in (1, 2):
        for step in run.steps.values():
            step.set_epoch(epoch)
        _saves.save_steps(run.config.save_dir, run.steps)
    return run, run.config.save_dir


def test_a_run_killed_between_the_files_of_a_save_has_the_save_before(two_saves):
    run, folder = two_saves
    (folder / ".last.new").mkdir()
    (folder / ".last.new" / "body.ckpt").touch()
    assert _saves.load_steps(_saves.find_save(folder, ["body", "head"]), run.steps).epoch == 2
    (folder / "last").rename(folder / ".last.old")
    assert _saves.load_steps(_saves.find_save(folder, ["body", "head"]), run.steps).epoch == 2
    _saves.save_steps(folder, run.steps)
    assert {p.name for p in folder.iterdir()} == {"last"}


def test_saves_of_two_moments_are_not_mixed(two_saves):
    run, folder = two_saves
    run.steps["body"].set_epoch(1)
    run.steps["body"].save(folder / "last" / "body.ckpt")
    run.steps["head"](*first_batch(run)[0])
    run.steps["head"].save(folder / "last" / "head.ckpt")
    with pytest.raises(mg.CheckpointError, match="mixes saves: body at step 0, head at step 1"):
        _saves.load_steps(folder / "last", run.steps)


SAVES = [
    pytest.param("nowhere", ["train"], r"'nowhere' holds no save of a run; give the", id="none"),
    pytest.param("runs/c", ["train"], "is a save of the steps body, head, and the config has train",
                 id="other-steps"),
]  # fmt: skip


@pytest.mark.usefixtures("two_saves")
@pytest.mark.parametrize(("folder", "names", "message"), SAVES)
def test_what_is_no_save_of_the_run_is_refused(folder, names, message):
    with pytest.raises(mg.CheckpointError, match=message):
        _saves.find_save(Path(folder), names)
