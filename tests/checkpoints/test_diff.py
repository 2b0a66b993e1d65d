"""Checkpoint files compared: against arrays that the test wrote, of both kinds of file."""

from __future__ import annotations

import json
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.experimental import optim

import msgrad as mg

KINDS = ["ckpt", "safetensors"]


def save(path: str, **values: np.ndarray | Tensor) -> str:
    """Write values under names in which two underscores stand for a dot."""
    entries = [
        {"name": name.replace("__", "."), "data": v if isinstance(v, Tensor) else Tensor(v)}
        for name, v in values.items()
    ]
    ms.save_checkpoint(entries, path, format=path.rpartition(".")[2])
    return path


ZEROS = np.zeros((2, 3), np.float32)
MOVED = np.array([[0, 0, 3], [0, -4, 0]], np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_weight_that_moved_is_told_with_how_far_whatever_the_kind_of_file(kind, other):
    a = save(f"a.{kind}", conv__weight=ZEROS, conv__bias=ZEROS[0])
    b = save(f"b.{other}", conv__weight=MOVED, conv__bias=ZEROS[0])
    movement = mg.diff_checkpoints(a, b)
    rows = {row.name: row for row in movement.rows}
    assert movement.moved == ["conv.weight"]
    assert (rows["conv.weight"].max_change, rows["conv.weight"].l2) == (4.0, 5.0)
    assert (rows["conv.weight"].bits_changed, rows["conv.bias"].bits_changed) == (2, 0)
    assert not movement.equal


def test_equal_files_are_equal_and_a_sign_of_a_zero_is_not():
    a = save("a.ckpt", w=ZEROS)
    assert mg.diff_checkpoints(a, save("b.ckpt", w=ZEROS)).equal
    assert mg.diff_checkpoints(a, save("c.ckpt", w=-ZEROS)).moved == ["w"]


def test_patterns_choose_among_the_names_in_the_files():
    a = save("a.ckpt", layers__1__w=ZEROS, layers__10__w=ZEROS, head__w=ZEROS)
    b = save("b.ckpt", layers__1__w=MOVED, layers__10__w=MOVED, head__w=MOVED)
    assert mg.diff_checkpoints(a, b, "layers.1").moved == ["layers.1.w"]
    assert mg.diff_checkpoints(a, b, "*", "!head").moved == ["layers.1.w", "layers.10.w"]
    with pytest.raises(mg.NoMatchError, match=r"pattern 'heat' matched none of 3 names; did you"):
        mg.diff_checkpoints(a, b, "heat")


def test_what_only_one_file_has_or_has_in_another_shape_is_named_and_not_equal():
    a = save("a.ckpt", body=ZEROS, old=ZEROS, cut=ZEROS, half=ZEROS)
    b = save("b.ckpt", body=ZEROS, new=ZEROS, cut=ZEROS[0], half=ZEROS.astype(np.float16))
    movement = mg.diff_checkpoints(a, b)
    assert [row.name for row in movement.rows] == ["body"]
    assert (movement.only_in_first, movement.only_in_second) == (("old",), ("new",))
    assert movement.unlike == (
        "cut: float32 (2, 3) / float32 (3,)",
        "half: float32 (2, 3) / float16 (2, 3)",
    )
    assert (movement.moved, movement.equal) == ([], False)
    assert movement.changed == ["cut", "half", "old", "new"]
    assert "only in the first file: old\nonly in the second file: new\nof another" in str(movement)


def test_bfloat16_is_compared_and_is_another_type_than_float32():
    a = save("a.ckpt", w=Tensor([1.0, 2.0], ms.bfloat16), v=Tensor([1.0], ms.bfloat16))
    b = save("b.ckpt", w=Tensor([1.0, 2.5], ms.bfloat16), v=Tensor([1.0], ms.float32))
    movement = mg.diff_checkpoints(a, b)
    assert [(row.name, row.max_change) for row in movement.rows] == [("w", 0.5)]
    assert movement.unlike == ("v: bfloat16 (1,) / float32 (1,)",)


OPTIMIZERS = [
    pytest.param(lambda p: nn.Momentum(p, 0.1, 0.9), id="momentum"),
    pytest.param(lambda p: nn.Adam(p, 0.1), id="adam"),
    pytest.param(lambda p: nn.AdamWeightDecay(p, 0.1), id="adamw"),
    pytest.param(lambda p: nn.SGD(p, 0.1, 0.9), id="sgd"),
    pytest.param(lambda p: nn.ASGD(p, 0.1), id="asgd"),
    pytest.param(lambda p: nn.AdaFactor(p), id="adafactor"),
    pytest.param(lambda p: nn.Lamb(p, 0.1), id="lamb"),
    pytest.param(lambda p: nn.Adam([{"params": p[:1], "lr": 0.1}, {"params": p[1:]}]), id="groups"),
    pytest.param(lambda p: optim.AdamW(p, 0.1), id="experimental-adamw"),
    pytest.param(lambda p: optim.NAdam(p, 0.1), id="experimental-nadam"),
    pytest.param(lambda p: mg.HoldOptimizer(nn.Momentum(p, 0.1, 0.9)), id="hold"),
]  # fmt: skip


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_optimizer_state_is_told_apart_from_weights(make):
    net = nn.SequentialCell(nn.Dense(2, 3), nn.BatchNorm1d(3))
    ms.save_checkpoint(net, "net.ckpt")
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), make(net.trainable_params()))
    ms.save_checkpoint(step, "step.ckpt")
    movement = mg.diff_checkpoints("net.ckpt", "step.ckpt")
    names = [p.name for p in net.get_parameters()]
    assert sorted(row.name for row in movement.rows) == sorted(names)
    assert movement.equal
    state = set(ms.load_checkpoint("step.ckpt")) - set(names)
    assert set(movement.state) == state != set()
    assert str(movement).endswith(f"{len(state)} values of optimizer state were not compared")


def test_what_model_checkpoint_appends_is_no_weight():
    net = nn.Dense(2, 1)
    ms.save_checkpoint(net, "a.ckpt")
    ms.save_checkpoint(net, "b.ckpt", append_dict={"epoch_num": 3, "step_num": 7})
    movement = mg.diff_checkpoints("a.ckpt", "b.ckpt")
    assert movement.equal
    assert movement.state == ("epoch_num", "step_num")


def test_a_backbone_beside_a_copy_of_its_head_is_no_state():
    a = save("a.ckpt", fc__weight=ZEROS, backbone__fc__weight=ZEROS, moments__fc__weight=ZEROS)
    movement = mg.diff_checkpoints(a, a)
    assert [row.name for row in movement.rows] == ["fc.weight", "backbone.fc.weight"]
    assert movement.state == ("moments.fc.weight",)


def test_files_of_a_train_step_are_compared_by_their_weights():
    net = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 1))
    mg.freeze(net, "0")
    step = mg.TrainStep(net, lambda p: nn.Momentum(p, 0.1, 0.9), nn.MSELoss())
    step.save("a.state")
    step(Tensor(np.ones((4, 2), np.float32)), Tensor(np.ones((4, 1), np.float32)))
    step.save("b.state")
    movement = mg.diff_checkpoints("a.state", "b.state")
    assert movement.moved == ["1.weight", "1.bias"]
    assert [row.name for row in movement.rows] == [p.name for p in net.get_parameters()]


def whole(kind: str) -> bytes:
    return Path(save(f"whole.{kind}", w=ZEROS, v=MOVED)).read_bytes()


DAMAGED = [
    pytest.param(lambda kind: whole(kind)[:-1], id="a-byte-short"),
    pytest.param(lambda kind: whole(kind)[: len(whole(kind)) // 2 + 3], id="half"),
    pytest.param(lambda kind: whole(kind)[:9], id="nine-bytes"),
    pytest.param(lambda kind: b"", id="empty"),
    pytest.param(lambda kind: b"epoch,loss\n1,0.5\n", id="text"),
    pytest.param(lambda kind: b"PK\x03\x04" + bytes(range(200)), id="an-archive-of-torch"),
    pytest.param(lambda kind: b"\x08" + b"\x00" * 7 + b"{}      ", id="a-header-of-nothing"),
    pytest.param(lambda kind: b"\xff" * 7 + b"\x7f{}", id="a-header-without-end"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_or_foreign_file_is_refused_by_name(kind, content):
    good, bad = save("good.ckpt", w=ZEROS), Path(f"bad.{kind}")
    bad.write_bytes(content(kind))
    message = rf"^path 'bad\.{kind}' of {bad.stat().st_size} bytes cannot be read, it is damaged"
    with pytest.raises(mg.CheckpointError, match=message):
        mg.diff_checkpoints(good, bad)
    with pytest.raises(mg.CheckpointError, match=message):
        mg.diff_checkpoints(bad, good)


def test_a_missing_file_is_named_and_a_file_without_weights_is_refused():
    with pytest.raises(mg.CheckpointError, match=r"^path 'no\.ckpt' is no file; give a \.ckpt or"):
        mg.diff_checkpoints("no.ckpt", "no.ckpt")
    counters = save("counters.ckpt", global_step=np.zeros(1, np.int32))
    with pytest.raises(mg.CheckpointError, match=r"holds no weight, nor does 'counters\.ckpt'"):
        mg.diff_checkpoints(counters, counters)


def test_the_ending_of_a_file_does_not_matter():
    net = nn.Dense(2, 1)
    ms.save_checkpoint(net, "a.ckpt")
    Path("a.ckpt").rename("best")
    _ = ops.assign(net.bias, Tensor([2.0]))
    ms.save_checkpoint(net, "b.safetensors", format="safetensors")
    Path("b.safetensors").rename("last.ckpt")
    assert mg.diff_checkpoints("best", "last.ckpt").moved == ["bias"]


def test_json_has_the_rows_and_what_could_not_be_compared():
    a = save("a.ckpt", w=ZEROS, old=ZEROS, moments__w=ZEROS)
    movement = mg.diff_checkpoints(a, save("b.ckpt", w=np.full((2, 3), np.nan, np.float32)))
    text = movement.to_json("deep/diff.json")
    assert Path("deep/diff.json").read_text(encoding="utf-8") == text + "\n"
    content = json.loads(text)
    assert content["rows"][0] == {
        "name": "w", "shape": [2, 3], "max_change": "nan", "l2": "nan", "bits_changed": 6
    }  # fmt: skip
    assert content["equal"] is False
    assert (content["only_in_first"], content["state"]) == (["old"], ["moments.w"])
