"""A run of a config: what trains, what is held, what it leaves, and that it goes on as if whole."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

import msgrad as mg
from msgrad.runs import _build, _saves, audits, build, first_batch, load_config, train
from msgrad.runs._build import each_stage
from msgrad.runs._train import evaluate
from tests.nets.small_task import LABELS, ROWS, Net, body_loss, datasets, head_loss

ROOT = Path(__file__).resolve().parents[2]
BASE = f"""
task: {ROOT}/tests/nets/small_task.py
device_target: CPU
epoch_size: 2
batch_size: 8
optimizer: {{name: AdamWeightDecay, learning_rate: 0.1, weight_decay: 0.1}}
"""
FREEZE = "plan: [{freeze: body}]"
STEPS = """
steps:
  body: {trains: body, loss: body_loss}
  head: {trains: head, loss: head_loss, optimizer: {name: SGD, learning_rate: 0.5}}
"""
EAGER = ("mode=pynative", "unreached=allow")  # nothing is compiled
BODY, HEAD = {"body.weight", "body.bias"}, {"head.weight", "head.bias"}


def config(text="", *changes):
    Path("c.yaml").write_text(BASE + text)
    return load_config("c.yaml", changes)


def values(net):
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        # the last bits differ between two compiled graphs on the CPU
        np.testing.assert_allclose(value, other[name], rtol=1e-5, atol=1e-7)


class Killed(Exception):
    """Stands for the end of a process."""


def killed_after(epoch):
    def report(done):
        if done.epoch == epoch:
            raise Killed

    return report


# --- one step


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """A run of two epochs with its body frozen: the run, its figures, its first weights."""
    ms.set_context(mode=ms.GRAPH_MODE)
    folder = tmp_path_factory.mktemp("frozen")
    (folder / "c.yaml").write_text(BASE + FREEZE)
    run = build(load_config(folder / "c.yaml", [f"ckpt_save_dir={folder}/run"]))
    first, told = values(run.net), []
    return run, train(run, report=told.append), first, told


def test_what_is_frozen_keeps_its_bits_and_the_rest_is_where_plain_mindspore_brings_it(frozen):
    run, figures, first, _ = frozen
    ms.set_seed(1)
    net = Net()
    assert {k: v.tolist() for k, v in values(net).items()} == {
        k: v.tolist() for k, v in first.items()
    }
    optimizer = nn.AdamWeightDecay(net.head.trainable_params(), 0.1, weight_decay=0.1)
    loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
    step = nn.TrainOneStepCell(loss, optimizer).set_train()
    rows, _ = datasets(run.config)
    iterator = rows.create_tuple_iterator(num_epochs=2)
    losses = [[float(step(x, y).asnumpy()) for x, y in iterator] for _ in range(2)]
    assert_close(values(run.net), values(net))
    found = [epoch.losses["train"] for epoch in figures.epochs]
    assert found == pytest.approx([np.mean(each) for each in losses], rel=1e-5)
    assert set(figures.held) == BODY
    for row in figures.movement.rows:
        assert bool(row.bits_changed) == (row.name in HEAD)


def test_each_epoch_is_told_and_the_figures_are_those_of_numpy(frozen):
    run, figures, _, told = frozen
    assert told == list(figures.epochs)
    assert [(e.epoch, e.epochs, e.steps, e.trainable) for e in told] == [
        (1, 2, 3, {"train": 2}),
        (2, 2, 6, {"train": 2}),
    ]
    w = values(run.net)
    hidden = np.tanh(ROWS @ w["body.weight"].T + w["body.bias"])
    scores = hidden @ w["head.weight"].T + w["head.bias"]
    assert told[-1].figures == {"accuracy": float(np.mean(scores.argmax(1) == LABELS))}


def test_a_run_leaves_its_config_figures_weights_and_save(frozen):
    run, figures, _, _ = frozen
    folder = run.config.save_dir
    assert {p.name for p in folder.iterdir()} == {
        "config.yaml", "figures.json", "weights.ckpt", "last"
    }  # fmt: skip
    found = json.loads((folder / "figures.json").read_text())
    assert found == json.loads(figures.to_json())
    assert [layer["name"] for layer in found["layers"] if layer["held"]] == sorted(
        BODY, reverse=True
    )
    saved = ms.load_checkpoint(str(folder / "weights.ckpt"))
    assert {k: v.asnumpy().tolist() for k, v in saved.items()} == {
        k: v.tolist() for k, v in values(run.net).items()
    }
    assert load_config(folder / "config.yaml").to_dict() == run.config.to_dict(folder)


def test_the_weights_of_a_run_begin_another_and_a_plan_fits_the_second(frozen):
    path = frozen[0].config.save_dir / "weights.ckpt"
    run = build(config("", f"ckpt_path={path}"))
    saved = {k: v.asnumpy().tolist() for k, v in ms.load_checkpoint(str(path)).items()}
    assert {k: v.tolist() for k, v in values(run.net).items()} == saved
    assert evaluate(run, datasets(run.config)[1]) == frozen[1].epochs[-1].figures


# --- going on


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
    with pytest.raises(Killed):
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
    ("text", "what"),
    [
        pytest.param("plan: [{freeze: head}]", "'body.weight' is held", id="other"),
        pytest.param("", "'body.weight' is held", id="none"),
        pytest.param(
            "plan: [{freeze: body}, {freeze: head.bias}]", "'head.bias' trains", id="more"
        ),
    ],
)
def test_a_save_under_another_plan_is_not_resumed(text, what):
    train(build(config(FREEZE, *EAGER)))
    run = build(config(text, *EAGER, "epoch_size=3"))
    with pytest.raises(mg.CheckpointError, match=f"under another plan: {what} in it and not in"):
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


# --- several steps


def test_each_step_trains_its_own_weights_by_its_own_loss():
    """Against both steps written by hand, on the same batches in the same order."""
    run = build(config(STEPS, "epoch_size=1"))
    first = values(run.net)
    figures = train(run)
    ms.set_seed(1)
    net = Net()
    rows, _ = datasets(run.config)
    adam = nn.AdamWeightDecay(net.body.trainable_params(), 0.1, weight_decay=0.1)
    sgd = nn.SGD(net.head.trainable_params(), 0.5)
    body = ms.value_and_grad(body_loss(net), None, adam.parameters)
    head = ms.value_and_grad(head_loss(net), None, sgd.parameters)
    losses = {"body": [], "head": []}
    for x, y in rows.create_tuple_iterator(num_epochs=1):
        for name, grad, optimizer in (("body", body, adam), ("head", head, sgd)):
            loss, grads = grad(x, y)
            optimizer(grads)
            losses[name].append(float(loss.asnumpy()))
    assert_close(values(run.net), values(net))
    means = {name: np.mean(each) for name, each in losses.items()}
    assert figures.epochs[0].losses == pytest.approx(means, rel=1e-4)
    assert {n for n in first if (values(run.net)[n] != first[n]).any()} == BODY | HEAD
    assert figures.held == ()


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
    with pytest.raises(mg.DeviceError) as told:
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
    with pytest.raises(mg.PlanError) as told:
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


# --- ranks, stages


def test_a_rank_that_is_not_the_first_neither_writes_nor_tells(monkeypatch):
    monkeypatch.setattr(_build, "rank_of_this", lambda: 1)
    monkeypatch.setattr(_saves, "saves_here", lambda: False)
    run, told = build(config(FREEZE, "epoch_size=1", *EAGER)), []
    figures = train(run, report=told.append)
    assert (told, Path("runs").exists(), len(figures.epochs)) == ([], False, 1)


def test_a_stage_of_no_length_is_never_entered_and_the_first_holds_at_the_end():
    stages = "[{train: head, epochs: 0}, {train: body, epochs: 1}, {train: '*'}]"
    run = build(config(f"stages: {stages}"))
    step = run.steps["train"]
    seen = [(number, set(step.trainable)) for number in each_stage(run)]
    assert seen == [(2, BODY), (3, BODY | HEAD)]
    assert set(step.trainable) == BODY


def test_a_task_evaluates_as_it_says_and_the_network_trains_again():
    run = build(load_config(ROOT / "configs" / "mlp_layer_updates.yaml"))
    _, held_out = run.task.call("datasets", run.config)
    figures = evaluate(run, held_out)
    x = np.linspace(-1, 1, 4)[:, None]
    w = values(run.net)
    for layer in ("fc1", "fc2", "fc3"):
        x = x @ w[f"{layer}.weight"].T + w[f"{layer}.bias"]
        x = x if layer == "fc3" else np.tanh(x)
    expected = np.mean((x - np.linspace(-1, 1, 4)[:, None] ** 2) ** 2)
    assert figures == {"error": pytest.approx(expected, rel=1e-5)}
    assert run.net.training
