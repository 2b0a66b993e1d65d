"""The explanation of a parameter: what decides, in which order, and what it overrides."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, mint, nn

import msgrad as mg
from tests.nets.shared import Masked, Tied

pytestmark = pytest.mark.usefixtures("mode")
X, Y = Tensor(np.ones((2, 4), np.float32)), Tensor(np.zeros((2, 2), np.float32))


def mlp() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dense(8, 2))


def momentum(parameters):
    return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.01)


def doubled(w):
    return w * 2


def by_hand(net: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)


def texts(explanation, kind):
    return [reason.text for reason in explanation.reasons if reason.kind == kind]


def test_a_weight_that_nothing_speaks_against_moves_by_the_models_design():
    why = mg.explain(mlp(), "0.weight")
    assert str(why) == "0.weight (8, 4) may move\n> model: made it trainable"
    assert (why.moves, why.reason.kind, why.paths) == (True, "model", ("0.weight",))


def test_freezes_are_told_in_order_with_what_each_overrides():
    net = mlp()
    mg.freeze(net, "0")
    later = mg.freeze(net, "*.bias")
    assert str(mg.explain(net, "0.bias")) == (
        "0.bias (8,) stays\n"
        "  model: made it trainable\n"
        "> freeze: freeze('0') keeps it, over the model\n"
        "  freeze: freeze('*.bias') keeps it as well"
    )
    assert texts(mg.explain(net, "3.bias"), "freeze") == [
        "freeze('*.bias') keeps it, over the model"
    ]
    later.undo()
    assert mg.explain(net, "3.bias").moves


def flag_off_then_seen(net):
    net[0].weight.requires_grad = False
    mg.freeze(net, "3")


def seen_then_flag_off(net):
    mg.freeze(net, "3")
    net[0].weight.requires_grad = False


def flag_off_then_on(net):
    flag_off_then_seen(net)
    net[0].weight.requires_grad = True


def forced(net):
    flag_off_then_seen(net)
    mg.unfreeze(net, "0", force=True)


def frozen_beside_a_flag(net):
    seen_then_flag_off(net)
    mg.freeze(net, "0")


FLAGS = [
    pytest.param(flag_off_then_seen, False, "model", "requires_grad was False before msgrad saw it",
                 id="off-before"),
    pytest.param(seen_then_flag_off, False, "flag", "requires_grad = False by hand, over the model",
                 id="off-by-hand"),
    pytest.param(flag_off_then_on, True, "flag", "requires_grad = True by hand, over the model",
                 id="on-by-hand"),
    pytest.param(forced, True, "model", "made it trainable", id="forced"),
    pytest.param(frozen_beside_a_flag, False, "freeze", "freeze('0') keeps it as well",
                 id="a-freeze-beside-a-flag"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "moves", "kind", "text"), FLAGS)
def test_a_flag_is_told_apart_from_a_freeze_and_from_the_model(change, moves, kind, text):
    net = mlp()
    change(net)
    why = mg.explain(net, "0.weight")
    assert (why.moves, why.reason.kind) == (moves, kind)
    assert why.reason.text.startswith(text)


BY_DESIGN = [
    pytest.param("mask", False, "requires_grad was False before msgrad saw it", id="mask"),
    pytest.param("count", False, "made it an integer, which no optimizer may move", id="integer"),
    pytest.param("norm.moving_mean", True, "adapts its running statistics", id="statistic"),
    pytest.param("fc.weight", True, "made it trainable", id="weight"),
]


@pytest.mark.parametrize(("name", "moves", "text"), BY_DESIGN)
def test_what_the_model_made_untrainable_is_explained_by_the_model(name, moves, text):
    why = mg.explain(Masked(), name)
    assert why.moves is moves
    assert text in why.reason.text


def test_the_statistics_of_a_frozen_norm_are_kept_by_its_freeze():
    net = mlp()
    mg.freeze(net, "1")
    why = mg.explain(net, "1.moving_mean")
    assert not why.moves
    assert why.reason.text == (
        "BatchNorm1d is wholly frozen by freeze('1'): it normalises with its running statistics "
        "and keeps them"
    )


def test_statistics_left_to_adapt_do_so_while_their_layer_is_frozen():
    net = mlp()
    mg.freeze(net, "1", statistics=False)
    why = mg.explain(net, "1.gamma")
    assert not why.moves
    assert texts(why, "layer") == ["BatchNorm1d adapts its running statistics in training"]
    assert mg.explain(net, "1.moving_mean").moves


def test_a_norm_that_nothing_can_hold_says_so():
    net = nn.SequentialCell(nn.Dense(4, 4), mint.nn.BatchNorm1d(4, track_running_stats=False))
    told = texts(mg.explain(net, "1.weight"), "layer")
    assert told[0].startswith("BatchNorm1d behaves as in training, frozen or not: it keeps no")


def test_a_train_step_tells_its_optimizer_its_rate_and_that_the_reach_is_still_unknown():
    step = mg.TrainStep(mlp(), momentum, nn.MSELoss())
    why = mg.explain(step, "0.weight")
    assert texts(why, "optimizer") == ["Momentum holds it, rate 0.1, weight decay 0.01"]
    assert texts(why, "step") == ["whether a gradient reaches it is found at the first call"]
    step(X, Y)
    assert texts(mg.explain(step, "0.weight"), "step") == []


def test_a_weight_that_no_gradient_reaches_stays_since_the_step_leaves_it_out():
    net = mlp()
    mg.stop_gradient(net, "1")
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    step(X, Y)
    why = mg.explain(step, "0.weight")
    assert (why.moves, why.reason.kind) == (False, "step")
    assert why.reason.text.startswith("no gradient reaches it, so TrainStep leaves it out")
    assert mg.explain(step, "3.weight").moves


def test_what_trainable_leaves_out_stays_in_this_step_only():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss(), trainable="3")
    why = mg.explain(step, "0.weight")
    assert (why.moves, why.reason.text) == (False, "trainable= leaves it out, over the model")
    assert mg.explain(net, "0.weight").moves


def test_a_change_after_the_last_call_is_told_as_it_is_now():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    step(X, Y)
    mg.freeze(net, "0")
    assert mg.explain(step, "0.weight").reason.text == "freeze('0') keeps it, over the model"
    assert texts(mg.explain(step, "0.weight"), "optimizer") == []


def test_a_step_with_nothing_left_to_train_is_explained_all_the_same():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    mg.freeze(net, "*")
    assert "freeze('*') keeps it, over the model" in texts(mg.explain(step, "0.weight"), "freeze")


def test_a_hold_keeps_a_weight_over_its_optimizer_and_rows_are_told():
    step = mg.TrainStep(mlp(), lambda p: mg.HoldOptimizer(momentum(p)), nn.MSELoss())
    step.optimizer.hold("0.weight")
    step.optimizer.hold_rows("3.weight", [1])
    why = mg.explain(step, "0.weight")
    assert (why.moves, why.reason.text) == (
        False,
        "HoldOptimizer.hold keeps it, over the optimizer",
    )
    rows = mg.explain(step, "3.weight")
    assert texts(rows, "hold") == ["HoldOptimizer.hold_rows keeps its rows [1]"]
    assert rows.moves


def test_an_optimizer_made_before_the_freeze_moves_the_weight_all_the_same():
    net = mlp()
    step = by_hand(net, momentum(net.trainable_params()))
    mg.freeze(net, "0")
    why = mg.explain(step, "0.weight")
    assert (why.moves, why.reason.kind) == (True, "optimizer")
    assert why.reason.text.endswith("it was made before that, and moves it all the same")


def test_an_optimizer_made_without_a_weight_does_not_move_it():
    net = mlp()
    step = by_hand(net, momentum(list(net[3].get_parameters())))
    why = mg.explain(step, "0.weight")
    assert (why.moves, why.reason.kind) == (False, "optimizer")
    assert why.reason.text.startswith("no optimizer holds it")


def test_a_model_is_explained_by_what_it_trains_with():
    net = mlp()
    model = ms.Model(net, nn.MSELoss(), momentum(net.trainable_params()))
    assert texts(mg.explain(model, "0.weight"), "optimizer") == [
        "Momentum holds it, rate 0.1, weight decay 0.01"
    ]


def test_the_rate_and_decay_are_those_of_the_group():
    net = mlp()
    rules = {"0": {"lr_scale": 0.5, "weight_decay": 0.0}}
    groups = mg.param_groups(net, rules, lr=0.1, weight_decay=0.2)
    step = by_hand(net, nn.Momentum(groups, 0.1, 0.9))
    assert texts(mg.explain(step, "0.weight"), "optimizer") == [
        "Momentum holds it, rate 0.05, weight decay 0"
    ]


def test_wrappers_on_the_way_are_told_and_those_elsewhere_are_not():
    net = nn.SequentialCell(mlp(), nn.Dense(2, 2))
    mg.stop_gradient(net, "0", at="input")
    mg.scale_gradient(net, "0.3", scale=0.5)
    mg.stop_gradient(net, "1")
    assert texts(mg.explain(net, "0.3.weight"), "wrapper") == [
        "StopGradient(at='input') at '0': acts on what stands before it, not on it",
        "ScaleGradient(scale=0.5, at='output') at '0.3': acts on its gradient",
    ]


def test_an_update_of_the_step_is_told():
    step = mg.TrainStep(mlp(), momentum, nn.MSELoss(), updates={"0.weight": doubled})
    assert texts(mg.explain(step, "0.weight"), "update") == ["a rule changes it after step"]


def misspelt(net):
    net[0].weight.require_grad = False


def test_a_misspelt_flag_did_not_freeze_and_is_named():
    net = mlp()
    misspelt(net)
    why = mg.explain(net, "0.weight")
    assert why.moves
    assert "'require_grad' is set on the parameter '0.weight'" in texts(why, "misplaced flag")[0]


@pytest.mark.parametrize("flag_off", [
    pytest.param("net[0].requires_grad = False", id="attribute"),
    pytest.param("net[0].set_grad(False)", id="set-grad"),
])  # fmt: skip
def test_a_flag_of_a_cell_did_not_freeze_and_its_line_is_named(flag_off, tmp_path):
    source = f"def turn_off(net, explain):\n    {flag_off}\n    return explain(net, '0.weight')\n"
    (tmp_path / "user.py").write_text(source, encoding="utf-8")
    names: dict = {}
    exec(compile(source, tmp_path / "user.py", "exec"), names)
    why = names["turn_off"](mlp(), mg.explain)
    assert why.moves
    assert texts(why, "misplaced flag")[0].startswith("user.py:2 sets requires_grad on a Dense")


def test_a_tied_weight_is_found_by_each_of_its_paths_and_named_with_both():
    net = Tied()
    for path in ("embedding.table", "output.weight"):
        why = mg.explain(net, path)
        assert (why.name, why.paths) == ("embedding.table", ("embedding.table", "output.weight"))
    assert str(why).startswith("embedding.table (6, 4), at output.weight, may move\n")


def test_a_name_inside_the_cell_of_a_loss_is_found_and_told_as_the_user_knows_it():
    step = mg.TrainStep(mlp(), momentum, nn.MSELoss())
    assert mg.explain(step, "_backbone.0.weight").paths == ("0.weight",)


class FilePlan:
    """A plan of two rules."""

    def rules_of(self, net, name):
        rules = {"*.bias": "group (plan.yaml:3)", "0": "freeze (plan.yaml:7)"}
        return [text for pattern, text in rules.items() if name in mg.select(net, pattern).names]


def test_a_plan_tells_its_rules_in_order():
    why = mg.explain(mlp(), "0.bias", FilePlan())
    assert texts(why, "plan") == ["group (plan.yaml:3)", "freeze (plan.yaml:7)"]
    assert texts(mg.explain(mlp(), "3.weight", FilePlan()), "plan") == []


WRONG = [
    pytest.param("0", mg.ArgumentError, "name '0' is that of 2 parameters; give one, such as '0.w",
                 id="a-cell"),
    pytest.param("0.wieght", mg.NoMatchError, "did you mean '0.weight'", id="misspelt"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "error", "message"), WRONG)
def test_a_name_of_none_or_of_several_is_refused(name, error, message):
    with pytest.raises(error, match=message):
        mg.explain(mlp(), name)


def test_what_is_no_network_is_refused():
    with pytest.raises(mg.ArgumentTypeError, match=r"net_or_step 3 is no Cell; give the network"):
        mg.explain(3, "w")
    wrong: Any = {"plan": []}
    with pytest.raises(mg.ArgumentTypeError, match=r"plan .* is no Plan; make one with mg.Plan.fr"):
        mg.explain(mlp(), "0.weight", wrong)
