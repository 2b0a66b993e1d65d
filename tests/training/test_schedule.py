"""A schedule of stages, in a loop and in Model.train, against plain MindSpore."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.train import Callback, LearningRateScheduler, RunContext

import msgrad as mg

rng = np.random.default_rng(5)
X = rng.standard_normal((4, 3)).astype(np.float32)
Y = rng.standard_normal((4, 2)).astype(np.float32)
BACKBONE, HEAD = ["0.weight", "0.bias"], ["2.weight", "2.bias"]
ALL = BACKBONE + HEAD


def make_net() -> nn.SequentialCell:
    weights = np.random.default_rng(6)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    for parameter in net.trainable_params():
        values = weights.standard_normal(parameter.shape).astype(np.float32)
        parameter.set_data(Tensor(values))
    return net


def momentum(parameters: list[ms.Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.1)


def make_step(net: nn.Cell, optimizer: Callable = momentum) -> mg.TrainStep:
    return mg.TrainStep(net, optimizer, nn.MSELoss(), unreached="allow")


def dataset() -> ds.Dataset:
    return ds.NumpySlicesDataset((np.tile(X, (2, 1)), np.tile(Y, (2, 1))), shuffle=False).batch(4)


class Moved(Callback):
    """Notes for each epoch which weights moved in it, at its first step already."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net, self.moved, self.first = net, [], []

    def on_train_epoch_begin(self, run_context: object) -> None:
        self.before = mg.Snapshot(self.net)
        self.first.append(None)

    def on_train_step_end(self, run_context: object) -> None:
        self.first[-1] = self.first[-1] or self.before.moved()

    def on_train_epoch_end(self, run_context: object) -> None:
        self.moved.append(self.before.moved())


STAGES = [mg.Stage(train="2", epochs=2), mg.Stage(train="*", epochs=1), mg.Stage(freeze="2")]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("sink", [False, True], ids=["no-sink", "sink"])
def test_in_model_train_each_stage_trains_from_its_first_step(sink: bool):
    net = make_net()
    step = make_step(net)
    seen = Moved(net)
    callbacks = [mg.Schedule(step, STAGES), seen]
    # the CPU turns the sink off: this shows that asking for it does no harm
    ms.Model(step).train(5, dataset(), callbacks=callbacks, dataset_sink_mode=sink)
    assert seen.moved == seen.first == [HEAD, HEAD, ALL, BACKBONE, BACKBONE]
    assert step.position == (10, 5)
    if ms.get_context("mode") == ms.GRAPH_MODE:
        assert step.compilations == 3


@pytest.mark.usefixtures("mode")
def test_the_values_are_those_of_plain_mindspore_stage_by_stage():
    net, plain = make_net(), make_net()
    step = make_step(net)
    schedule = mg.Schedule(step, [mg.Stage(train="2", steps=2), mg.Stage(train="*")])
    loss_net = nn.WithLossCell(plain, nn.MSELoss())
    head = momentum(list(plain[2].get_parameters()))
    whole = momentum(list(plain.get_parameters()))
    for number in range(4):
        schedule.at(step=number)
        step(Tensor(X), Tensor(Y))
        if number == 2:
            for old, new in zip(head.moments, whole.moments[2:], strict=True):
                ms.ops.assign(new, old)
        optimizer = head if number < 2 else whole
        if number in (0, 2):
            hand = nn.TrainOneStepCell(loss_net, optimizer)
        hand(Tensor(X), Tensor(Y))
    for mine, theirs in zip(net.get_parameters(), plain.get_parameters(), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-7)


def test_applying_a_stage_twice_changes_nothing():
    net = make_net()
    step = make_step(net)
    schedule = mg.Schedule(step, STAGES)
    schedule.at(epoch=0)
    step(Tensor(X), Tensor(Y))
    before = [p.requires_grad for p in net.get_parameters()]
    assert schedule.at(epoch=1) is STAGES[0]
    schedule.at(epoch=1)
    step(Tensor(X), Tensor(Y))
    assert [p.requires_grad for p in net.get_parameters()] == before
    assert step.compilations == 1
    assert step.stages == [HEAD]


def test_the_stage_depends_on_the_position_alone():
    net = make_net()
    step = make_step(net)
    schedule = mg.Schedule(step, STAGES)
    found = []
    for epoch in (7, 0, 2, 1, 3):
        schedule.at(epoch=epoch)
        found.append(step.trainable)
    assert found == [BACKBONE, HEAD, ALL, HEAD, BACKBONE]


def test_a_first_stage_of_no_length_is_as_if_nothing_was_ever_frozen():
    net, other = make_net(), make_net()
    step, never = make_step(net), make_step(other)
    schedule = mg.Schedule(step, [mg.Stage(train="2", epochs=0), mg.Stage(train="*")])
    schedule.at(epoch=0)
    for _ in range(3):
        step(Tensor(X), Tensor(Y))
        never(Tensor(X), Tensor(Y))
    assert step.stages == never.stages == [ALL]
    for mine, theirs in zip(net.get_parameters(), other.get_parameters(), strict=True):
        assert mine.asnumpy().tobytes() == theirs.asnumpy().tobytes()


def test_a_stage_of_the_whole_run_never_ends():
    net = make_net()
    step = make_step(net)
    seen = Moved(net)
    schedule = mg.Schedule(step, [mg.Stage(train="2", epochs=2)])
    ms.Model(step).train(2, dataset(), callbacks=[schedule, seen])
    assert seen.moved == [HEAD, HEAD]


def test_stages_longer_than_the_run_are_refused_before_the_first_step():
    net = make_net()
    step = make_step(net)
    before = mg.Snapshot(net)
    schedule = mg.Schedule(step, [mg.Stage(train="2", epochs=2), mg.Stage(train="*", epochs=2)])
    with pytest.raises(ValueError, match=r"4 epochs long and the run has 3; shorten.* open$"):
        ms.Model(step).train(3, dataset(), callbacks=[schedule])
    assert before.compare().equal
    assert step.compilations == 0
    with pytest.raises(ValueError, match=r"stages are 7 steps long and the run has 6"):
        mg.Schedule(step, [mg.Stage(train="2", steps=7)], steps=6)
    with pytest.raises(ValueError, match=r"7 steps long and the run has 6; .* or train longer$"):
        mg.Schedule(step, [mg.Stage(train="2", steps=7), mg.Stage(train="*")], steps=6)


def test_steps_are_counted_against_the_epochs_of_the_run():
    net = make_net()
    step = make_step(net)
    seen = Moved(net)
    schedule = mg.Schedule(step, [mg.Stage(train="2", steps=3), mg.Stage(train="0", steps=3)])
    ms.Model(step).train(3, dataset(), callbacks=[schedule, seen])
    assert seen.moved == [HEAD, ALL, BACKBONE]
    with pytest.raises(ValueError, match=r"stages are 6 steps long and the run has 4"):
        ms.Model(step).train(2, dataset(), callbacks=[schedule])


def test_the_rate_callback_of_mindspore_goes_on_working_across_stages():
    net = make_net()
    step = make_step(net)
    rates = []

    class Note(Callback):
        def on_train_step_end(self, run_context: RunContext) -> None:
            params = run_context.original_args()
            assert params.optimizer is step.optimizer
            rates.append(float(params.optimizer.get_lr().asnumpy()))

    def lower(rate: float, step_number: int) -> float:
        return rate * 0.5

    stages = [mg.Stage(train="2", steps=2), mg.Stage(train="*")]
    callbacks = [mg.Schedule(step, stages), LearningRateScheduler(lower), Note()]
    ms.Model(step).train(2, dataset(), callbacks=callbacks)
    np.testing.assert_allclose(rates, [0.05, 0.025, 0.0125, 0.00625], rtol=1e-6)


def test_a_stage_lifts_only_what_the_schedule_froze():
    net = make_net()
    step = make_step(net)
    own = mg.freeze(net, "0.bias")
    schedule = mg.Schedule(step, [mg.Stage(freeze="2", epochs=1), mg.Stage(freeze="0.weight")])
    schedule.at(epoch=0)
    assert step.trainable == ["0.weight"]
    schedule.at(epoch=1)
    assert step.trainable == HEAD
    own.undo()
    assert step.trainable == ["0.bias", *HEAD]


def test_a_stage_that_trains_what_the_user_froze_gives_it_back_at_its_end():
    net = make_net()
    step = make_step(net)
    mg.freeze(net, "0")
    schedule = mg.Schedule(step, [mg.Stage(train="0", epochs=1), mg.Stage(freeze="2.bias")])
    schedule.at(epoch=0)
    assert step.trainable == BACKBONE
    schedule.at(epoch=1)
    assert step.trainable == ["2.weight"]


@pytest.mark.parametrize("done", [1, 2, 3], ids=["in-stage-1", "at-the-change", "in-stage-2"])
def test_a_resumed_schedule_goes_on_and_leaves_nothing_frozen_behind(done: int):
    stages = [mg.Stage(train="2", epochs=2), mg.Stage(train="0", epochs=2), mg.Stage(train="*")]

    def run(net: nn.Cell, first: int, last: int, path: str | None = None) -> mg.TrainStep:
        step = make_step(net)
        schedule = mg.Schedule(step, stages)
        if path:
            assert step.load(path) == (first, first - 1)
        for epoch in range(first, last):
            schedule.at(epoch=epoch)
            step(Tensor(X), Tensor(Y))
            step.save(f"{epoch + 1}.msgrad")
        return step

    whole, resumed = make_net(), make_net()
    run(whole, 0, 6)
    step = run(resumed, done, 6, f"{done}.msgrad")
    assert step.trainable == ALL
    for mine, theirs in zip(resumed.get_parameters(), whole.get_parameters(), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-7)


WRONG = [
    pytest.param([], r"stages is empty; give at least one Stage", id="none"),
    pytest.param(
        [mg.Stage(train="2"), mg.Stage(train="*")], r"stage 1 of 2 has no length", id="open-first"
    ),
    pytest.param(
        [mg.Stage(train="2", epochs=1), mg.Stage(train="0", steps=1)],
        r"counted in epochs and in steps; give all lengths in one",
        id="two-units",
    ),
    pytest.param([mg.Stage(freeze="*")], r"trains nothing of 4 parameters", id="nothing-left"),
    pytest.param([mg.Stage(train="3")], r"pattern '3' matched none of 4", id="no-match"),
    pytest.param(["head"], r"stage 'head' is a str; give a Stage", id="string"),
]


@pytest.mark.parametrize(("stages", "message"), WRONG)
def test_stages_that_cannot_be_are_refused_at_once(stages: list, message: str):
    with pytest.raises(ValueError, match=message):
        mg.Schedule(make_step(make_net()), stages)


@pytest.mark.parametrize("given", [{}, {"step": 3}, {"epoch": -1}], ids=["none", "step", "below"])
def test_a_position_in_the_wrong_unit_is_refused(given: dict):
    with pytest.raises(ValueError, match=r"epoch (None|-1) is no position; give \.at\(epoch=0\)"):
        mg.Schedule(make_step(make_net()), STAGES).at(**given)


@pytest.mark.parametrize(
    "stages",
    [STAGES, [mg.Stage(train="2", steps=3), mg.Stage(train="*")]],
    ids=["in-epochs", "in-steps"],
)
def test_a_run_of_a_model_goes_on_where_it_was_saved_at_the_end_of_an_epoch(stages: list):
    whole, resumed = make_net(), make_net()
    step = make_step(whole)

    class Save(Callback):
        def on_train_epoch_end(self, run_context: RunContext) -> None:
            step.save(f"{run_context.original_args().cur_epoch_num}.msgrad")

    ms.Model(step).train(5, dataset(), callbacks=[mg.Schedule(step, stages), Save()])
    other = make_step(resumed)
    position = other.load("2.msgrad")
    assert position == (4, 2)
    schedule = mg.Schedule(other, stages)
    ms.Model(other).train(5, dataset(), callbacks=[schedule], initial_epoch=position.epoch)
    assert other.trainable == step.trainable
    assert other.position == step.position == (10, 5)
    for mine, theirs in zip(resumed.get_parameters(), whole.get_parameters(), strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-7)


def test_a_model_that_trains_something_else_is_refused():
    net = make_net()
    other = ms.Model(net, nn.MSELoss(), momentum(net.trainable_params()))
    with pytest.raises(ValueError, match=r"does not train the step.*train ms\.Model\(step\)"):
        other.train(5, dataset(), callbacks=[mg.Schedule(make_step(net), STAGES)])


def test_a_plain_train_cell_is_refused():
    plain = nn.TrainOneStepCell(
        nn.WithLossCell(make_net(), nn.MSELoss()), momentum(make_net().trainable_params())
    )
    with pytest.raises(TypeError, match="step is a TrainOneStepCell; give a TrainStep"):
        mg.Schedule(plain, STAGES)  # pyright: ignore[reportArgumentType]
