"""A run as it is built: what the machine and the task lack, and its audit."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

import msgrad as mg
from msgrad.runs import _build, audits, build, first_batch, train
from tests.runs.small_runs import (
    BODY,
    EAGER,
    FREEZE,
    HEAD,
    config,
    values,
)

# --- what the machine lacks, what the task lacks


def test_what_a_cpu_cannot_do_is_turned_off_and_said_once(caplog):
    with caplog.at_level(logging.WARNING, "msgrad"):
        run = build(config("", "dataset_sink_mode=true", "loss_scale=64", "device_target=auto"))
    assert [r.message.partition(",")[0].partition(":")[0] for r in caplog.records] == [
        "target 'auto' takes the CPU",
        "dataset_sink_mode true is turned off",
        "loss_scale 64.0 is turned off",
    ]
    assert (run.config.dataset_sink_mode, run.config.loss_scale) == (False, None)


def test_an_ascend_that_is_not_there_is_told_at_the_key_of_the_config(monkeypatch):
    monkeypatch.setattr(_build, "why_not_ascend", lambda: ("there is none", "plug one in"))
    with pytest.raises(mg.DeviceError, match="cannot be used, there is none; plug") as told:
        build(config("", "device_target=Ascend"))
    assert str(told.value) == (
        "--set device_target=Ascend: device_target 'Ascend' cannot be used, there is none; plug "
        "one in, or give auto or CPU"
    )


def test_a_loss_that_is_not_finite_is_told_once_and_is_json(caplog):
    run = build(config("", "optimizer.learning_rate=1e38", *EAGER))
    figures = train(run)
    assert [r.message for r in caplog.records if r.name == "msgrad"] == [
        "the loss of epoch 1 is nan in step train; lower optimizer.learning_rate or give "
        "clip_norm, and see msgrad audit for the weight that is not finite first"
    ]

    def refuse(constant):
        raise ValueError(constant)

    content = json.loads(figures.to_json(), parse_constant=refuse)
    assert [epoch["loss"] for epoch in content["epochs"]] == ["nan", "nan"]


def test_where_mindspore_computes_nothing_nothing_is_said_to_have_been_held(caplog, monkeypatch):
    """Under MS_SIMULATION_LEVEL every weight reads as zero afterwards."""
    run = build(config(FREEZE, "epoch_size=1", *EAGER))
    # not the variable itself: an operator that reads it once computes nothing for the whole process
    monkeypatch.setattr("msgrad.runs._train.computes", lambda: False)
    assert train(run).held == ()
    assert "all was compiled and nothing computed, no figure counts" in caplog.text


def test_a_dry_build_says_nothing_of_a_device_it_does_not_need(caplog):
    with caplog.at_level(logging.WARNING, "msgrad"):
        run = build(
            config("", "dataset_sink_mode=true", "device_target=Ascend", "data_dir=none"), dry=True
        )
    assert (caplog.records, run.device) == ([], "CPU")


def test_files_are_looked_for_before_the_task_is_imported():
    Path("t.py").write_text("raise RuntimeError")
    with pytest.raises(mg.PlanError, match="data_dir 'none' is no folder"):
        build(config("", "task=t.py", "data_dir=none"))


def refused(task, text="", *changes):
    Path("t.py").write_text(task)
    with pytest.raises(mg.PlanError, match="; ") as told:
        build(config(text, "task=t.py", *changes), dry=True)
    return str(told.value)


def test_what_a_task_lacks_is_told_at_once():
    text = "steps: {d: {trains: '*', loss: d_loss}}"
    task = "def netwrk(config): ...\ndef d_los(net): ...\n"
    assert refused(task, text).splitlines() == [
        "--set task=t.py: task 't.py' has no function 'network'; did you mean 'netwrk'?",
        "--set task=t.py: task 't.py' has no function 'datasets'; define datasets(config)",
        "--set task=t.py: task 't.py' has no function 'd_loss'; did you mean 'd_los'?",
    ]


TASKS = [
    pytest.param("x = 1 +", "task 't.py' cannot be imported: SyntaxError: invalid syntax (t.py, "
                 "line 1)", id="syntax"),
    pytest.param("\nimport nothere",
                 "task 't.py' cannot be imported: ModuleNotFoundError: No module named 'nothere' "
                 "(t.py:2); mend it", id="import"),
    pytest.param("def network(config): return 3\ndef datasets(config): ...",
                 "network() of task 't.py' returned 3; return a Cell", id="no-cell"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "message"), TASKS)
def test_a_task_that_cannot_be_used_is_named(task, message):
    assert message in refused(task)


def test_the_keys_of_a_task_are_checked_and_filled_up():
    text = "task_args: {ded: true}"
    message = "c.yaml:7: key 'ded' of task 't.py' is unknown; did you mean 'dead'?"
    task = "TASK_ARGS = {'dead': False}\ndef network(config): ...\ndef datasets(config): ...\n"
    assert refused(task, text) == message
    assert build(config(), dry=True).config.task_args == {"dead": False, "norm": False}


def test_a_task_imports_its_neighbours():
    Path("near.py").write_text("from mindspore import nn\nnet = nn.Dense(2, 2)\n")
    Path("t.py").write_text(
        "from near import net\ndef network(config): return net\ndatasets = id\n"
    )
    assert [*values(build(config("", "task=t.py"), dry=True).net)] == ["weight", "bias"]


# --- audit


def test_every_step_and_stage_is_audited_and_the_run_is_as_before():
    run = build(config("stages: [{train: head, epochs: 1}, {train: '*'}]"))
    first = values(run.net)
    found = list(audits(run, first_batch(run)[0], steps=2))
    trained = [{r.name for r in each.audit.rows if r.verdict == "trained"} for each in found]
    assert [(each.step, each.stage) for each in found] == [("train", 1), ("train", 2)]
    assert trained == [HEAD, BODY | HEAD]
    assert {k: v.tolist() for k, v in values(run.net).items()} == {
        k: v.tolist() for k, v in first.items()
    }
    assert set(run.steps["train"].trainable) == HEAD


DEAD = "task_args: {dead: true}\naudit: {steps: 1, on_problem: %s}"


def test_an_audit_that_finds_problems_stops_a_run_or_warns(caplog):
    run = build(config(DEAD % "error", "epoch_size=1"))
    first = values(run.net)
    with pytest.raises(mg.AuditError, match=r"body\.weight: unreached"):
        train(run)
    assert {k: v.tolist() for k, v in values(run.net).items()} == {
        k: v.tolist() for k, v in first.items()
    }
    caplog.clear()
    run = build(config(DEAD % "warn", "epoch_size=1"))
    figures = train(run)
    assert "audit of step train: body.weight: unreached" in caplog.text
    assert set(figures.held) == BODY


def test_what_the_optimizer_keeps_without_a_gradient_is_audited_as_it_trains():
    """unreached: allow leaves it in the optimizer, where decay moves it."""
    run = build(config("task_args: {dead: true}\nunreached: allow"))
    (found,) = audits(run, first_batch(run)[0], steps=1)
    row = next(row for row in found.audit.rows if row.name == "body.weight")
    expected = np.abs(values(run.net)["body.weight"]).max() * 0.1 * 0.1
    assert row.verdict == "leaks"
    assert row.max_change == pytest.approx(expected, rel=1e-4)


def test_without_data_a_batch_of_the_task_stands_in_and_it_is_said():
    run = build(config("", "data_dir=none"), data=False)
    batch, why = first_batch(run)
    assert why is not None
    assert why.startswith("--set data_dir=none: data_dir 'none' is no folder")
    assert [tuple(t.shape) for t in batch] == [(8, 4), (8,)]
    assert first_batch(build(config()))[1] is None
