"""A run of a config: what trains, what is held, and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from msgrad.errors import PlanError
from msgrad.runs import _build, _epochs, _saves, build, load_config, train
from msgrad.runs._build import each_stage
from msgrad.runs._evaluate import evaluate
from tests.nets.small_task import LABELS, ROWS, Net, body_loss, datasets, head_loss
from tests.runs.small_runs import (
    BASE,
    BODY,
    EAGER,
    FREEZE,
    HEAD,
    ROOT,
    STEPS,
    assert_close,
    config,
    eager,
    values,
)

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
        "config.yaml", "figures.json", "weights.ckpt", "best.ckpt", "last"
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


# --- ranks, stages


def test_a_rank_that_is_not_the_first_neither_writes_nor_tells(monkeypatch):
    monkeypatch.setattr(_build, "rank_of_this", lambda: 1)
    for module in (_epochs, _saves):
        monkeypatch.setattr(module, "saves_here", lambda: False)
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


def test_a_stage_of_a_config_has_a_rate_and_keywords_of_its_own():
    stages = """
stages:
  - {train: head, epochs: 1}
  - {train: "*", lr: 0.5, optimizer: {weight_decay: 0.0}}
"""
    run = eager(text=stages)
    assert run.schedule is not None
    found = []
    for epoch in range(2):
        run.schedule.at(epoch=epoch)
        step = run.steps["train"]
        trains = step.trainable
        decay = float(step.optimizer.get_weight_decay())
        found.append((float(step.optimizer.get_lr().asnumpy()), decay))
        assert set(trains) == (HEAD if epoch == 0 else BODY | HEAD)
    assert found == [(np.float32(0.1), np.float32(0.1)), (0.5, 0.0)]


def test_a_keyword_that_the_optimizer_of_a_stage_does_not_take_is_told_with_its_line():
    stages = """
stages:
  - {train: head, epochs: 1}
  - {train: "*", optimizer: {wieght_decay: 0.0}}
"""
    with pytest.raises(PlanError, match=r"c\.yaml:10.*'wieght_decay' of optimizer AdamWeightDecay"):
        config(stages)
