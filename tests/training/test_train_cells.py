"""Train cells of the user's: they rename nothing, and what they have is found through the step."""

from __future__ import annotations

import logging
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn
from mindspore import dataset as ds
from mindspore.train import CheckpointConfig, ModelCheckpoint

import msgrad as mg
from tests.nets.step_nets import ListedStep, RenamingStep, ScaledStep, values_of

pytestmark = pytest.mark.usefixtures("mode")
X, Y = Tensor([[1.0]]), Tensor([[0.0]])
STATE = {"global_step", "learning_rate", "momentum", "calls"}


def two_layers() -> nn.SequentialCell:
    return nn.SequentialCell(
        nn.Dense(1, 1, "ones", has_bias=False), nn.Dense(1, 1, "ones", has_bias=False)
    )


def momentum(parameters: list[Parameter]) -> nn.Cell:
    return nn.Momentum(parameters, 0.01, 0.9)


def step_over(net: nn.Cell, **options: bool) -> mg.TrainStep:
    def train_cell(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return RenamingStep(network, optimizer, **options)

    return mg.TrainStep(net, momentum, nn.MSELoss(), train_cell=train_cell).set_train()


def run(net: nn.Cell, step: mg.TrainStep) -> None:
    """Train the second layer for two steps, then both for two."""
    schedule = mg.Schedule(step, [mg.Stage(train="1", steps=2), mg.Stage(train="*")])
    for number in range(4):
        schedule.at(step=number)
        step(X, Y)


def by_hand() -> list[float]:
    """Compute the same in NumPy: the output is a·b, its loss (a·b)²."""
    weights, moments = np.ones(2), np.zeros(2)
    for number in range(4):
        a, b = weights
        trained = np.array([number >= 2, True])
        moments = np.where(trained, 0.9 * moments + 2 * a * b * np.array([b, a]), moments)
        weights = np.where(trained, weights - 0.01 * moments, weights)
    return weights.tolist()


def test_a_train_cell_that_renames_trains_as_one_that_does_not(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "msgrad")
    net = two_layers()
    step = step_over(net)
    run(net, step)
    assert [p.name for p in net.get_parameters()] == ["0.weight", "1.weight"]
    assert step.trainable == ["0.weight", "1.weight"]
    # momentum of the second layer went along
    found = [float(p.asnumpy().item()) for p in net.get_parameters()]
    np.testing.assert_allclose(found, by_hand(), rtol=1e-6)
    told = [r.getMessage() for r in caplog.records if "renamed" in r.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("train_cell renamed 7 parameters, such as 0.weight to optimizer.0")
    assert "which have their names back; give the __init__ of its base class auto" in told[0]


def test_names_stay_through_audits_saves_and_files(tmp_path: Any):
    net = two_layers()
    step = step_over(net)
    for _ in range(2):
        assert mg.audit(step, X, Y).problems == []
    run(net, step)
    assert {p.name for p in step.optimizer.parameters} == {"0.weight", "1.weight"}
    assert set(values_of(step.optimizer)) >= {"moments.0.weight", "moments.1.weight"}
    mg.save_trainable(net, tmp_path / "part.ckpt")
    fresh = two_layers()
    mg.load_weights(fresh, tmp_path / "part.ckpt")
    assert values_of(fresh) == values_of(net)


def test_an_optimizer_of_the_users_that_renames_leaves_the_names(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, "msgrad")

    class Outer(nn.Cell):
        def __init__(self, parameters: list[Parameter]) -> None:
            super().__init__()
            self.inner = momentum(parameters)
            self.parameters = self.inner.parameters

        def construct(self, grads: tuple[Tensor, ...]) -> Any:
            return self.inner(grads)

    net = two_layers()
    step = mg.TrainStep(net, Outer, nn.MSELoss(), unreached="allow")
    assert step.trainable == ["0.weight", "1.weight"]
    assert "optimizer renamed 2 parameters" in caplog.text


def test_a_state_with_the_name_of_a_weight_is_refused():
    class Copying(nn.TrainOneStepCell):
        def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
            super().__init__(network, optimizer)
            self.copy = Parameter(Tensor([[1.0]]), name="0.weight")

    with pytest.raises(mg.ArgumentError, match=r"state named '0\.weight', which is the name of a"):
        mg.TrainStep(two_layers(), momentum, nn.MSELoss(), train_cell=Copying)


def test_what_a_train_cell_has_is_found_through_the_step():
    step = step_over(two_layers(), auto_prefix=False)
    step(X, Y)
    assert (step.calls_so_far(), int(step.calls.asnumpy()), step.decay) == (1, 1, 0.5)
    assert [p.name for p in step.weights] == step.trainable
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = step.no_such_thing
    with pytest.raises(mg.ArgumentError, match=r"attribute 'decay' is that of the train cell Ren"):
        step.decay = 0.25
    step.my_own = 3
    assert step.my_own == 3


def test_what_a_train_cell_keeps_is_among_the_parameters_and_in_every_file(tmp_path: Any):
    net = two_layers()
    step = step_over(net, auto_prefix=False)
    names = {"0.weight", "1.weight", "moments.0.weight", "moments.1.weight", *STATE}
    names |= {"ema.0.weight", "ema.1.weight"}
    step(X, Y)
    assert {p.name for p in step.get_parameters()} == names
    data = ds.NumpySlicesDataset((X.asnumpy(), Y.asnumpy()), shuffle=False).batch(1)
    saving = ModelCheckpoint("run", directory=str(tmp_path), config=CheckpointConfig(1))
    ms.Model(step).train(1, data, callbacks=[saving], dataset_sink_mode=False)
    saved = ms.load_checkpoint(str(tmp_path / "run-1_1.ckpt"))
    assert set(saved) - {"epoch_num", "step_num"} == names

    other = step_over(two_layers(), auto_prefix=False)
    assert ms.load_param_into_net(other, saved)[0] == []
    for one in (step, other):
        one(X, Y)
    expected = {p.name: p.asnumpy().copy() for p in step.get_parameters()}
    assert int(expected["calls"]) == 3
    for p in other.get_parameters():
        np.testing.assert_allclose(p.asnumpy(), expected[p.name], rtol=1e-6, err_msg=p.name)


def test_the_loss_scale_of_a_plain_object_is_among_the_parameters_too():
    step = mg.TrainStep(two_layers(), momentum, nn.MSELoss(), train_cell=ScaledStep)
    assert {"skipped", "scale_value"} <= {p.name.split(".")[-1] for p in step.get_parameters()}


def in_groups(net: nn.SequentialCell) -> Any:
    """Make optimizers of two groups, in another order than the network's."""

    def make(parameters: list[Parameter]) -> nn.Cell:
        groups = [{"params": [net[1].weight], "lr": 0.25}, {"params": [net[0].weight]}]
        return nn.SGD(groups, 0.125)

    return make


LISTS = [
    pytest.param(lambda net: [net[0].weight, net[1].weight], id="order"),
    pytest.param(lambda net: [net[1].weight], id="fewer"),
]


@pytest.mark.parametrize("weights", LISTS)
def test_gradients_in_another_order_or_number_than_the_optimizers_are_refused(weights: Any):
    net = two_layers()

    def train_cell(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return ListedStep(network, optimizer, weights(net))

    with pytest.raises(mg.ArgumentError, match=r"train cell ListedStep takes gradients in another"):
        mg.TrainStep(net, in_groups(net), nn.MSELoss(), train_cell=train_cell)


def test_gradients_in_the_order_of_the_groups_train_each_layer_at_its_rate():
    net = two_layers()

    def train_cell(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return ListedStep(network, optimizer, [net[1].weight, net[0].weight])

    step = mg.TrainStep(net, in_groups(net), nn.MSELoss(), train_cell=train_cell).set_train()
    net[0].weight.set_data(Tensor([[0.5]]))
    step(X, Y)
    # the output is a·b = 0.5: gradients 2·0.5·b and 2·0.5·a
    found = [p.asnumpy().item() for p in net.get_parameters()]
    assert found == [0.5 - 0.125 * 1.0, 1.0 - 0.25 * 0.5]
