"""The dry run: the fate of every parameter, against what the rules say by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import msgrad as mg
from msgrad.runs import build, dry_run, load_config

ROOT = Path(__file__).resolve().parents[2]
BASE = f"""task: {ROOT}/tests/nets/small_task.py
epoch_size: 3
batch_size: 8
optimizer: {{name: AdamWeightDecay, learning_rate: 0.1, weight_decay: 0.2}}
"""
NAMES = ["body.weight", "body.bias", "head.weight", "head.bias"]
NORM = ["norm.moving_mean", "norm.moving_variance", "norm.gamma", "norm.beta"]
# float32, as nn.Dense and nn.BatchNorm1d make them
SIZES = {"body.weight": 96, "body.bias": 24, "head.weight": 48, "head.bias": 8}


def told(text, *changes, reach=False):
    Path("c.yaml").write_text(BASE + text)
    run = build(load_config("c.yaml", changes), dry=True)
    inputs = run.task.call("inputs", run.config) if reach else None
    return dry_run(run, inputs), run


def fates(stage):
    """Write each fate in one text, by name."""
    return {f.name: f"{f.fate} {f.by}".strip() for f in stage.fates}


def test_rules_and_stages_decide_and_the_rule_is_named_with_its_line():
    text = """task_args: {norm: true}
plan:
- freeze: [body.weight, norm]
- {group: "*.bias", lr_scale: 0.5, weight_decay: 0.0}
- {hold: head.weight, rows: [1]}
updates: {head.bias: non_negative}
stages:
- {train: head, epochs: 2}
- {train: the rest, cumulative: true}
"""
    found, run = told(text)
    assert [(rule.rule, rule.takes) for rule in found.rules] == [
        ("rule 1 (c.yaml:7)", ("body.weight", "norm.gamma", "norm.beta")),
        ("rule 2 (c.yaml:8)", ("body.bias", "head.bias")),
        ("rule 3 (c.yaml:9)", ("head.weight",)),
        ("update 1 (c.yaml:10)", ("head.bias",)),
    ]
    first, second = found.stages
    assert (first.stage, first.length) == (1, "2 epochs")
    assert (second.stage, second.length) == (2, "to the end")
    both = {
        **dict.fromkeys(["body.weight", "norm.gamma", "norm.beta"], "frozen rule 1 (c.yaml:7)"),
        **dict.fromkeys(NORM[:2], "kept the model"),
        "head.weight": "trains rows [1] held, rule 3 (c.yaml:9)",
        "head.bias": "trains",
    }
    assert fates(second) == {**both, "body.bias": "trains"}
    assert {n: f for n, f in fates(first).items() if n != "body.bias"} == both
    assert fates(first)["body.bias"].startswith("frozen stage 1")
    rates = {f.name: (f.rate, f.decay) for f in second.fates if f.rate is not None}
    assert rates == {"head.weight": (0.1, 0.2), "head.bias": (0.05, 0.0), "body.bias": (0.05, 0.0)}
    assert [f.name for f in first.fates if f.updates == ("update 1 (c.yaml:10)",)] == ["head.bias"]
    assert run.steps["train"].compilations == 0


def test_counts_bytes_and_optimizer_memory_are_those_of_the_optimizer_that_was_made():
    """AdamWeightDecay keeps two numbers for each one, Momentum one."""
    found, _ = told("plan: [{freeze: body}]")
    (stage,) = found.stages
    whole = sum(SIZES.values())
    assert stage.total(trains=True) == (2, 56)
    assert stage.total(trains=False) == (2, whole - 56)
    assert (stage.state_bytes, stage.state_bytes_of_all) == (2 * 56, 2 * whole)
    momentum, _ = told("", "optimizer={name: Momentum, momentum: 0.9}")
    assert momentum.stages[0].state_bytes == whole


def test_a_stop_holds_its_own_weights_and_the_graph_finds_the_others():
    text = "plan: [{stop: head, at: input}]"
    without, run = told(text)
    assert set(fates(without.stages[0]).values()) == {"trains"}
    assert run.steps["train"].compilations == 0
    found, _ = told(text, reach=True)
    assert fates(found.stages[0]) == {
        "body.weight": "stopped no gradient reaches it",
        "body.bias": "stopped no gradient reaches it",
        "head.weight": "trains",
        "head.bias": "trains",
    }
    assert (without.reach, found.reach) == (False, True)
    own, _ = told("plan: [{stop: body}]")
    assert fates(own.stages[0]) == {
        "body.weight": "stopped rule 1 (c.yaml:5)",
        "body.bias": "stopped rule 1 (c.yaml:5)",
        "head.weight": "trains",
        "head.bias": "trains",
    }
    assert own.stages[0].state_bytes == 2 * 56


def test_what_is_allowed_to_stay_in_the_optimizer_trains_without_a_gradient():
    found, _ = told("plan: [{stop: body}]\nunreached: allow")
    assert fates(found.stages[0])["body.weight"] == "trains no gradient reaches it"
    assert found.stages[0].state_bytes == 2 * sum(SIZES.values())


def test_of_several_steps_each_has_its_own_fates_and_optimizer():
    text = """steps:
  body: {trains: body, loss: body_loss}
  head: {trains: head, loss: head_loss, optimizer: {name: SGD, learning_rate: 0.5}}
"""
    found, _ = told(text)
    assert [(s.step, s.stage) for s in found.stages] == [("body", None), ("head", None)]
    aside = "left to another step"
    assert [list(fates(stage).values()) for stage in found.stages] == [
        ["trains", "trains", aside, aside],
        [aside, aside, "trains", "trains"],
    ]
    assert {f.rate for f in found.stages[1].fates} == {None, 0.5}


def test_a_held_weight_is_not_one_that_trains():
    found, _ = told("plan: [{hold: body}]")
    (stage,) = found.stages
    assert fates(stage)["body.weight"] == "held rule 1 (c.yaml:5)"
    assert stage.total(trains=True) == (2, 56)


def test_norm_statistics_adapt_unless_their_cell_is_frozen():
    text = "task_args: {norm: true}\nplan: [{freeze: norm, statistics: %s}]"
    for statistics, fate in (("true", "kept"), ("false", "adapts")):
        found, _ = told(text % statistics)
        assert {fates(found.stages[0])[name] for name in NORM[:2]} == {f"{fate} the model"}


def test_all_of_it_is_json():
    found, _ = told("plan: [{freeze: body}]")
    content = json.loads(found.to_json())
    assert (content["name"], content["reach"]) == ("c", False)
    (rule,) = content["rules"]
    assert rule == {
        "rule": "rule 1 (c.yaml:5)",
        "does": "freeze body",
        "takes": ["body.weight", "body.bias"],
        "cells": False,
    }
    (stage,) = content["stages"]
    assert [fate["name"] for fate in stage["fates"]] == NAMES
    assert (stage["trainable"], stage["trainable_bytes"]) == (2, 56)
    assert (stage["held"], stage["held_bytes"]) == (2, 120)
    assert stage["fates"][2]["shape"] == [2, 6]


CONTRADICTIONS = [
    pytest.param("plan: [{freeze: bady}]", "did you mean 'body'?", id="no-match"),
    pytest.param("plan: [{freeze: '*'}]", "nothing is left to train", id="nothing-left"),
    pytest.param("stages: [{train: head, epochs: 9}, {train: '*'}]",
                 "stage 1 ends with epoch 9 and epoch_size is 3; shorten it", id="too-long"),
    pytest.param("stages: [{train: head, epochs: 3}, {train: '*'}]",
                 "stage 2 begins behind epoch 3 and epoch_size is 3; shorten those before it, or "
                 "give epoch_size: 4 or more", id="never-begins"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), CONTRADICTIONS)
def test_what_cannot_be_is_refused(text, message):
    with pytest.raises(mg.MsgradError, match=message.replace("?", r"\?")):
        told(text)
