"""A TrainStep under `ms.Model`: callbacks, checkpoints, evaluation between epochs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore import dataset as ds
from mindspore.train import (
    Accuracy,
    BackupAndRestore,
    Callback,
    CheckpointConfig,
    EarlyStopping,
    History,
    LambdaCallback,
    LearningRateScheduler,
    LossMonitor,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TimeMonitor,
)

import msgrad as mg
from tests.nets.behaviour_nets import bits, moved

pytestmark = pytest.mark.usefixtures("mode")
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(1.0, 2.0, (12, 4)).astype(np.float32)
LABELS = RNG.integers(0, 2, 12).astype(np.int32)
STATISTICS = {"0.1.moving_mean", "0.1.moving_variance"}
FROZEN = STATISTICS | {"0.0.weight", "0.0.bias", "0.1.gamma", "0.1.beta"}
TRAINED = {"1.weight", "1.bias"}


def batches() -> ds.Dataset:
    """Three batches of four rows."""
    return ds.NumpySlicesDataset({"x": INPUTS, "label": LABELS}, shuffle=False).batch(4)


def network() -> nn.SequentialCell:
    """A part with weights and statistics, to be frozen as `"0"`, and a layer to be trained."""
    return nn.SequentialCell(nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4)), nn.Dense(4, 2))


def momentum(parameters: list[Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.1)


def step_over(net: nn.Cell) -> mg.TrainStep:
    return mg.TrainStep(net, momentum, nn.CrossEntropyLoss(), unreached="allow")


def assert_close(net: nn.Cell, other: nn.Cell) -> None:
    values = {p.name: p.asnumpy() for p in other.get_parameters()}
    for p in net.get_parameters():
        # the last bits differ between two graphs on the CPU
        np.testing.assert_allclose(p.asnumpy(), values[p.name], rtol=1e-4, atol=1e-6)


class At(Callback):
    """Calls a function once, when an event comes for the n-th time."""

    def __init__(self, event: str, number: int, action: Callable[[], Any]) -> None:
        super().__init__()
        self.left, self.action = number, action
        setattr(self, event, self.come)

    def come(self, run_context: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.action()


class Track(Callback):
    """Notes which weights moved in each step, as MindSpore itself sees them."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net, self.moved, self.before = net, [], {}

    def on_train_step_begin(self, run_context: Any) -> None:
        self.before = bits(self.net)

    def on_train_step_end(self, run_context: Any) -> None:
        self.moved.append(moved(self.net, self.before))


@pytest.mark.parametrize("sink", [False, True], ids=["no-sink", "sink-that-the-cpu-ignores"])
def test_a_model_trains_as_plain_mindspore_does_and_leaves_the_frozen_part(sink: bool):
    net = network()
    plain = copy.deepcopy(net)
    mg.freeze(net, "0")
    before = bits(net)
    step = step_over(net)
    monitors = [LossMonitor(), TimeMonitor()]
    ms.Model(step).train(2, batches(), callbacks=monitors, dataset_sink_mode=sink)
    assert moved(net, before) == TRAINED
    assert step.position.step == 6

    # a norm that never uses the batch, and an optimizer over the rest
    plain[0][1].use_batch_statistics = False
    ms.Model(plain, nn.CrossEntropyLoss(), momentum(plain[1].trainable_params())).train(
        2, batches(), dataset_sink_mode=False
    )
    assert_close(net, plain)


EVENTS = [
    # event, how often it came, the steps after it
    pytest.param("on_train_epoch_begin", 2, 3, id="epoch-begin"),
    pytest.param("on_train_epoch_end", 1, 3, id="epoch-end"),
    pytest.param("on_train_step_begin", 3, 4, id="step-begin"),
    pytest.param("on_train_step_end", 2, 4, id="step-end"),
]


@pytest.mark.parametrize(("event", "number", "steps"), EVENTS)
def test_a_freeze_in_a_callback_holds_from_the_very_next_step(event: str, number: int, steps: int):
    net = network()
    track = Track(net)
    step = step_over(net)
    freezing = At(event, number, lambda: mg.freeze(net, "0"))
    ms.Model(step).train(2, batches(), callbacks=[track, freezing], dataset_sink_mode=False)
    assert track.moved == [FROZEN | TRAINED] * (6 - steps) + [TRAINED] * steps


@pytest.mark.parametrize(("event", "number", "steps"), [EVENTS[0], EVENTS[2]])
def test_an_unfreeze_in_a_callback_trains_from_the_very_next_step(
    event: str, number: int, steps: int
):
    net = network()
    mg.freeze(net, "0")
    track = Track(net)
    step = step_over(net)
    thawing = At(event, number, lambda: mg.unfreeze(net, "0"))
    ms.Model(step).train(2, batches(), callbacks=[track, thawing], dataset_sink_mode=False)
    assert track.moved == [TRAINED] * (6 - steps) + [FROZEN | TRAINED] * steps
    assert step.compilations == (2 if ms.get_context("mode") == ms.GRAPH_MODE else 0)


def test_evaluation_between_epochs_neither_undoes_the_freeze_nor_moves_anything():
    net = network()
    mg.freeze(net, "0")
    loss = nn.CrossEntropyLoss()
    step = step_over(net)
    model = ms.Model(
        step,
        eval_network=nn.WithEvalCell(net, loss),
        metrics={"accuracy": Accuracy()},
        eval_indexes=[0, 1, 2],
    )
    before = bits(net)
    for _ in range(2):
        model.train(1, batches(), dataset_sink_mode=False)
        trained = bits(net)
        found = model.eval(batches(), dataset_sink_mode=False)
        assert moved(net, trained) == set()
    assert moved(net, before) == TRAINED
    # by hand, in NumPy: statistics of 0 and 1 leave the norm an identity but for epsilon
    values = {p.name: p.asnumpy() for p in net.get_parameters()}
    hidden = (INPUTS @ values["0.0.weight"].T + values["0.0.bias"]) / np.sqrt(1 + 1e-5)
    logits = hidden @ values["1.weight"].T + values["1.bias"]
    assert found == {"accuracy": pytest.approx(np.mean(logits.argmax(1) == LABELS))}
    # what the evaluation asked for is the mode after unfreezing
    mg.unfreeze(net)
    assert [c.training for _, c in net.cells_and_names()] == [False] * 5


def test_fit_evaluates_between_epochs_and_trains_on():
    net = network()
    mg.freeze(net, "0")
    track = Track(net)
    evaluation = nn.WithEvalCell(net, nn.CrossEntropyLoss())
    model = ms.Model(
        step_over(net), eval_network=evaluation, metrics={"a": Accuracy()}, eval_indexes=[0, 1, 2]
    )
    model.fit(2, batches(), batches(), callbacks=[track], dataset_sink_mode=False)
    assert track.moved == [TRAINED] * 6
    mg.unfreeze(net)
    track.moved.clear()
    model.fit(2, batches(), batches(), callbacks=[track], dataset_sink_mode=False)
    assert track.moved == [FROZEN | TRAINED] * 6


def test_a_checkpoint_of_the_model_holds_the_optimizer_and_loads_into_a_new_step():
    net = network()
    mg.freeze(net, "0")
    step = step_over(net)
    saving = ModelCheckpoint("run", directory=".", config=CheckpointConfig(3))
    ms.Model(step).train(1, batches(), callbacks=[saving], dataset_sink_mode=False)
    saved = ms.load_checkpoint("run-1_3.ckpt")
    assert {n for n in saved if n.startswith("moments.")} == {"moments.1.weight", "moments.1.bias"}
    assert set(saved) >= FROZEN | TRAINED

    fresh = network()
    mg.freeze(fresh, "0")
    again = step_over(fresh)
    # what belongs to the run and not to the step
    extra = ["epoch_num", "step_num"]
    not_loaded, unused = ms.load_param_into_net(again, saved)
    assert (not_loaded, [n for n in unused if n not in extra]) == ([], [])
    assert bits(again.optimizer) == bits(step.optimizer)
    for one in (step, again):
        ms.Model(one).train(1, batches(), dataset_sink_mode=False)
    assert_close(fresh, net)
    assert_close(again.optimizer, step.optimizer)


def test_a_checkpoint_after_a_stage_change_holds_the_state_of_all_that_trains():
    net = network()
    mg.freeze(net, "0")
    step = step_over(net)
    callbacks = [
        At("on_train_epoch_begin", 2, lambda: mg.unfreeze(net)),
        ModelCheckpoint("run", directory=".", config=CheckpointConfig(3)),
    ]
    ms.Model(step).train(2, batches(), callbacks=callbacks, dataset_sink_mode=False)
    saved = ms.load_checkpoint("run-2_3.ckpt")
    slots = {n.removeprefix("moments.") for n in saved if n.startswith("moments.")}
    assert slots == (FROZEN | TRAINED) - STATISTICS


def test_a_rate_set_by_a_callback_is_the_rate_of_the_next_step_and_of_the_next_stage():
    net = network()
    mg.freeze(net, "0")
    track = Track(net)
    step = step_over(net)

    def stand_still() -> None:
        ops.assign(step.optimizer.learning_rate, Tensor(0.0, ms.float32))

    callbacks = [
        track,
        At("on_train_step_begin", 3, stand_still),
        At("on_train_step_begin", 5, lambda: mg.unfreeze(net)),
    ]
    ms.Model(step).train(2, batches(), callbacks=callbacks, dataset_sink_mode=False)
    assert track.moved == [TRAINED] * 2 + [set()] * 2 + [STATISTICS] * 2


def test_with_a_schedule_mindspores_own_callback_finds_the_rate_of_the_step():
    net = network()
    step = step_over(net)
    schedule = mg.Schedule(step, [mg.Stage(train="1", epochs=2), mg.Stage(train="*")])
    # a loss that cannot fall by 100: the rate is halved after the second and the third epoch
    plateau = ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=100.0, mode="min")
    ms.Model(step).train(3, batches(), callbacks=[schedule, plateau], dataset_sink_mode=False)
    assert len(step.stages) == 2
    assert step.optimizer.learning_rate.asnumpy() == pytest.approx(0.025)


class Look(Callback):
    """Thaws the network after an epoch, and notes whether all is as the step has it."""

    def __init__(self, net: nn.Cell, step: mg.TrainStep) -> None:
        super().__init__()
        self.net, self.step, self.same, self.optimizers = net, step, [], []

    def look(self, run_context: Any) -> None:
        optimizer = run_context.original_args().optimizer
        self.same.append(optimizer is self.step.optimizer)
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)

    on_train_begin = on_train_step_end = on_train_end = look

    def on_train_epoch_end(self, run_context: Any) -> None:
        self.look(run_context)
        if run_context.original_args().cur_epoch_num == 2:
            mg.unfreeze(self.net)


SCHEDULER = (lambda: LearningRateScheduler(lambda lr, n: lr / 2), 2.0**-12)
# a loss that cannot fall by 100
PLATEAU = (
    lambda: ReduceLROnPlateau("loss", factor=0.5, patience=0, min_delta=100.0, mode="min"),
    2.0**-5,
)
STOPPING = (lambda: EarlyStopping("loss", patience=9, restore_best_weights=True), 2.0**-3)
CALLBACKS = [
    # a callback of MindSpore's, the rate after three epochs of three steps from 1/8, and how
    pytest.param(*SCHEDULER, "train", id="scheduler"),
    pytest.param(*SCHEDULER, "fit", id="scheduler-fit"),
    pytest.param(*PLATEAU, "train", id="plateau"),
    pytest.param(*PLATEAU, "fit", id="plateau-fit"),
    pytest.param(*STOPPING, "fit", id="stopping"),
    pytest.param(lambda: History(), 2.0**-3, "fit", id="history"),
    pytest.param(lambda: BackupAndRestore("backup"), 2.0**-3, "fit", id="backup"),
    pytest.param(lambda: LambdaCallback(), 2.0**-3, "fit", id="lambda"),
    pytest.param(lambda: ModelCheckpoint("run", directory="."), 2.0**-3, "fit", id="checkpoint"),
]


@pytest.mark.parametrize(("make", "rate", "how"), CALLBACKS)
def test_callbacks_of_mindspore_find_the_optimizer_of_the_present_stage(
    make: Callable[[], Callback], rate: float, how: str
):
    net = network()
    mg.freeze(net, "0")
    step = mg.TrainStep(
        net, lambda p: nn.Momentum(p, 0.125, 0.9), nn.CrossEntropyLoss(), unreached="allow"
    )
    look = Look(net, step)
    evaluation = nn.WithEvalCell(net, nn.CrossEntropyLoss())
    model = ms.Model(
        step, eval_network=evaluation, metrics={"a": Accuracy()}, eval_indexes=[0, 1, 2]
    )
    given = [batches()] if how == "train" else [batches(), batches()]
    getattr(model, how)(3, *given, callbacks=[make(), look], dataset_sink_mode=False)
    assert look.same == [True] * 14
    assert len(look.optimizers) == 2
    # the scheduler reads the rate from a text of eight digits
    assert step.optimizer.learning_rate.asnumpy() == pytest.approx(rate, rel=1e-3)


def test_a_second_run_of_a_model_finds_the_optimizer_too():
    step = step_over(network())
    model = ms.Model(step)
    for rate in (0.05, 0.025):
        halved = LearningRateScheduler(lambda lr, n: lr / 2 if n == 1 else lr)
        model.train(1, batches(), callbacks=[halved], dataset_sink_mode=False)
        assert step.optimizer.learning_rate.asnumpy() == pytest.approx(rate)


def test_prediction_with_the_network_equals_what_the_frozen_part_gives_in_training():
    net = network()
    mg.freeze(net, "0")
    ms.Model(step_over(net)).train(1, batches(), dataset_sink_mode=False)
    part = nn.SequentialCell(net[0])
    x = Tensor(INPUTS)
    training = part(x).asnumpy()
    predicted = ms.Model(nn.SequentialCell(net[0])).predict(x).asnumpy()
    assert predicted.tobytes() == training.tobytes()


def test_the_amp_level_of_the_model_is_refused_by_mindspore():
    step = step_over(network())
    with pytest.raises(ValueError, match="Auto mixed precision will not work"):
        ms.Model(step, amp_level="O2")


def test_mixed_precision_set_on_the_network_before_works():
    net = network()
    step = step_over(amp.auto_mixed_precision(net, "O2"))
    frozen = mg.freeze(step.network, "0.*")
    assert set(frozen.names) == FROZEN - STATISTICS
    before = bits(net)
    ms.Model(step).train(1, batches(), dataset_sink_mode=False)
    assert moved(net, before) == TRAINED
    assert {p.dtype for p in net.get_parameters()} == {ms.float32}
