"""Saving a step and going on: a resumed run equals one that was never interrupted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.experimental import optim

import msgrad as mg
from msgrad.checkpoints import _files

rng = np.random.default_rng(0)
X = Tensor(rng.standard_normal((4, 4)).astype(np.float32))
Y = Tensor(rng.standard_normal((4, 2)).astype(np.float32))


def make_net() -> nn.SequentialCell:
    weights = np.random.default_rng(1)
    net = nn.SequentialCell(
        nn.Dense(4, 6), nn.BatchNorm1d(6), nn.Dense(6, 6), nn.Tanh(), nn.Dense(6, 2)
    )
    for parameter in net.trainable_params():
        parameter.set_data(
            Tensor(weights.standard_normal(parameter.shape).astype(np.float32) * 0.5)
        )
    return net


def adam_with_groups(parameters: list[ms.Parameter]) -> nn.Cell:
    biases = [p for p in parameters if p.name.endswith("bias")]
    others = [p for p in parameters if not p.name.endswith("bias")]
    groups = [{"params": others, "weight_decay": 0.01}, {"params": biases, "lr": 0.05}]
    return nn.Adam([g for g in groups if g["params"]], learning_rate=0.1)


OPTIMIZERS = [
    pytest.param(lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.01), id="momentum"),
    pytest.param(adam_with_groups, id="grouped-adam"),
    pytest.param(lambda p: nn.Adam(p, [0.1, 0.05, 0.02, 0.01, 0.005, 0.002]), id="adam-rate-list"),
    pytest.param(lambda p: optim.AdamW(p, 0.05), id="experimental-adamw"),
]


class Run:
    """A run of six steps: three with the first layer frozen, three with everything."""

    def __init__(self, optimizer: Callable) -> None:
        self.net = make_net()
        self.frozen = mg.freeze(self.net, "0", "1")
        self.step = mg.TrainStep(self.net, optimizer, nn.MSELoss(), unreached="allow")
        self.step.set_train()

    def go(self, first: int, last: int) -> list[float]:
        losses = []
        for number in range(first, last):
            if number == 3:
                self.frozen.undo()
            losses.append(float(self.step(X + number, Y).asnumpy()))
        return losses

    def weights(self) -> dict[str, np.ndarray]:
        return {p.name: p.asnumpy().copy() for p in self.step.get_parameters()}


CUTS = [pytest.param(2, id="before-the-unfreeze"), pytest.param(5, id="after-the-unfreeze")]


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., tuple[list[float], dict, Path]]:
    """Run six steps once for each optimizer and mode, and save on the way."""
    folder = tmp_path_factory.mktemp("whole")

    @cache
    def uninterrupted(optimizer: Callable, mode: str) -> tuple[list[float], dict, Path]:
        run = Run(optimizer)
        losses, files = [], folder / f"{mode}-{id(optimizer)}"
        for number in range(6):
            run.step.save(files / f"{number}")
            losses += run.go(number, number + 1)
        return losses, run.weights(), files

    return uninterrupted


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_equals_an_uninterrupted_one(
    optimizer: Callable, cut: int, mode: str, whole: Callable
):
    losses, weights, files = whole(optimizer, mode)
    resumed = Run(optimizer)
    for parameter in resumed.net.get_parameters():
        ms.ops.assign(parameter, parameter * 0 + 7)
    assert resumed.step.load(files / str(cut)) == (cut, 0)
    assert mg.is_frozen(resumed.net, "0") == (cut <= 3)
    # the first launches of a graph differ in their last bits on the CPU (docs/mindspore_facts.md)
    np.testing.assert_allclose(resumed.go(cut, 6), losses[cut:], rtol=2e-6)
    for name, value in weights.items():
        np.testing.assert_allclose(
            resumed.weights()[name], value, rtol=1e-5, atol=1e-6, err_msg=name
        )
    assert resumed.step.position == (6, 0)


def test_everything_is_the_same_bits_right_after_loading():
    run = Run(adam_with_groups)
    run.go(0, 5)
    run.step.save("a.msgrad")
    other = Run(adam_with_groups)
    other.step.load("a.msgrad")
    saved, loaded = run.weights(), other.weights()
    assert saved.keys() == loaded.keys()
    assert [n for n in saved if saved[n].tobytes() != loaded[n].tobytes()] == []
    assert other.step.trainable == run.step.trainable


def test_state_of_weights_outside_the_present_stage_is_kept_in_the_file():
    run = Run(lambda p: nn.Momentum(p, 0.1, 0.9))
    mg.unfreeze(run.net)
    run.go(0, 2)
    mg.freeze(run.net, "0")
    run.go(2, 3)
    kept = run.step._engine.carry.latest["moments.0.weight"].asnumpy().copy()
    run.step.save("a.msgrad")
    other = Run(lambda p: nn.Momentum(p, 0.1, 0.9))
    other.step.load("a.msgrad")
    mg.unfreeze(other.net)
    assert "0.weight" in other.step.trainable
    state = {p.name: p.asnumpy() for p in other.step.optimizer.get_parameters()}
    assert np.any(kept != 0)
    assert np.array_equal(state["moments.0.weight"], kept)


def test_a_freeze_made_again_before_loading_still_undoes_its_own_claim():
    run = Run(lambda p: nn.SGD(p, 0.1))
    run.go(0, 1)
    run.step.save("a.msgrad")
    other = Run(lambda p: nn.SGD(p, 0.1))
    other.step.load("a.msgrad")
    assert mg.is_frozen(other.net, "0")
    other.frozen.undo()
    assert mg.frozen_state(other.net) == "trainable"


def test_a_rate_changed_by_hand_is_the_rate_after_loading():
    run = Run(lambda p: nn.SGD(p, 0.1))
    run.go(0, 1)
    ms.ops.assign(run.step.optimizer.learning_rate, Tensor(0.025, ms.float32))
    run.step.save("a.msgrad")
    other = Run(lambda p: nn.SGD(p, 0.1))
    other.step.load("a.msgrad")
    assert float(other.step.optimizer.get_lr().asnumpy()) == np.float32(0.025)


def test_the_streams_of_numpy_and_the_seed_come_back():
    run = Run(lambda p: nn.SGD(p, 0.1))
    ms.set_seed(11)
    np.random.rand(3)
    run.step.save("a.msgrad")
    expected = np.random.rand(4)
    ms.set_seed(5)
    run.step.load("a.msgrad")
    assert ms.get_seed() == 11
    assert np.array_equal(np.random.rand(4), expected)


def test_a_killed_save_leaves_the_file_before_it(monkeypatch: pytest.MonkeyPatch):
    run = Run(lambda p: nn.SGD(p, 0.1))
    run.go(0, 1)
    run.step.save("a.msgrad")
    run.go(1, 2)

    def dies(entries: object, name: str, **_: object) -> None:
        Path(name).write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(_files.ms, "save_checkpoint", dies)
    with pytest.raises(mg.CheckpointError, match=r"'a\.msgrad' cannot be written: no space left"):
        run.step.save("a.msgrad")
    assert [p.name for p in Path().iterdir() if "msgrad" in p.name] == ["a.msgrad"]
    assert Run(lambda p: nn.SGD(p, 0.1)).step.load("a.msgrad") == (1, 0)


def spoil_nothing(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[: len(data) // 2])


def foreign(path: Path) -> None:
    path.unlink()
    ms.save_checkpoint(make_net(), str(path.with_suffix(".ckpt")))
    path.with_suffix(".ckpt").rename(path)


BAD_FILES = [
    pytest.param(
        spoil_nothing, r"'a\.msgrad' is no file; give what TrainStep\.save wrote", id="missing"
    ),
    pytest.param(truncate, r"'a\.msgrad' .*(it is damaged or|a checkpoint that)", id="truncated"),
    pytest.param(
        foreign, r"is a checkpoint that TrainStep\.save did not write; load it with", id="foreign"
    ),
]


@pytest.mark.parametrize(("spoil", "message"), BAD_FILES)
def test_a_file_that_cannot_be_read_changes_nothing(spoil: Callable[[Path], None], message: str):
    run = Run(lambda p: nn.SGD(p, 0.1))
    run.step.save("a.msgrad")
    spoil(Path("a.msgrad"))
    run.go(0, 1)
    before = mg.Snapshot(run.step)
    with pytest.raises(mg.CheckpointError, match=message):
        run.step.load("a.msgrad")
    assert before.compare().equal
    assert run.step.position == (1, 0)


def test_a_file_of_another_network_lists_every_difference_and_changes_nothing():
    run = Run(lambda p: nn.SGD(p, 0.1))
    run.step.save("a.msgrad")
    other = nn.SequentialCell(nn.Dense(4, 5), nn.BatchNorm1d(6), nn.Dense(6, 2))
    step = mg.TrainStep(other, lambda p: nn.SGD(p, 0.1), nn.MSELoss())
    before = mg.Snapshot(step)
    with pytest.raises(mg.CheckpointError, match=r"nothing was loaded") as caught:
        step.load("a.msgrad")
    assert "unknown to the network: 4.weight" in str(caught.value)
    assert "0.weight: Float32 (6, 4) in the file, Float32 (5, 4) here" in str(caught.value)
    assert before.compare().equal


class Dropping(nn.Cell):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.a, self.drop, self.b = nn.Dense(4, 4), nn.Dropout(p=p), nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.b(self.drop(self.a(x)))


def test_an_active_dropout_is_named_once_when_saving(caplog: pytest.LogCaptureFixture):
    step = mg.TrainStep(Dropping(0.5), lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    step.save("a.msgrad")
    step.save("a.msgrad")
    assert [r.message for r in caplog.records if "dropout" in r.message] == [
        "dropout is active in drop, and MindSpore keeps its stream hidden: "
        "a resumed run draws other dropout masks"
    ]


def test_an_active_dropout_is_named_where_a_new_stage_repeats_its_masks(
    caplog: pytest.LogCaptureFixture,
):
    net = Dropping(0.5)
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    step(X, Y)
    assert not caplog.records
    mg.freeze(net, "b")
    step(X, Y)
    assert ["begins with the same masks again" in r.message for r in caplog.records] == [True]


@pytest.mark.parametrize("frozen", [True, False], ids=["held", "rate-0"])
def test_a_dropout_that_drops_nothing_is_not_named(frozen: bool, caplog: pytest.LogCaptureFixture):
    net = nn.SequentialCell(
        nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.5 if frozen else 0.0)), nn.Dense(4, 2)
    )
    if frozen:
        mg.freeze(net, "0")
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss()).set_train()
    with caplog.at_level(logging.WARNING):
        step.save("a.msgrad")
    assert not caplog.records
