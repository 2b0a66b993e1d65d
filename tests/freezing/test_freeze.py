"""Freezing by name: claims, their undoing, and what the model itself made untrainable."""

from __future__ import annotations

import copy
import itertools

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

import msgrad as mg
from tests.nets.shared import Masked, Tied


def dense_pair() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))


def normed() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 8), nn.BatchNorm1d(8), nn.Dense(8, 2))


def flags(net: nn.Cell) -> dict[str, bool]:
    return {p.name: p.requires_grad for p in net.get_parameters()}


def test_freezing_a_layer_turns_off_its_flags_and_no_other():
    net = dense_pair()
    frozen = mg.freeze(net, "0")
    assert frozen.names == frozen.changed == ["0.weight", "0.bias"]
    assert [p.name for p in net.trainable_params()] == ["2.weight", "2.bias"]


def test_a_second_freeze_matches_and_changes_nothing():
    net = dense_pair()
    mg.freeze(net, "0")
    again = mg.freeze(net, "0.weight", "2.bias")
    assert again.names == ["0.weight", "2.bias"]
    assert again.changed == ["2.bias"]


def test_undo_goes_back_and_a_second_undo_does_nothing():
    net = dense_pair()
    frozen = mg.freeze(net, "0")
    frozen.undo()
    mg.freeze(net, "0")
    frozen.undo()
    assert mg.is_frozen(net, "0")
    assert not mg.is_frozen(net, "2")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_three_freezes_undone_in_any_order_leave_the_state_before(order: tuple[int, ...]):
    net = normed()
    before = flags(net)
    claims = [mg.freeze(net, "0"), mg.freeze(net, "0.weight", "1"), mg.freeze(net, "*")]
    for number in order[:2]:
        claims[number].undo()
    left = {0: {"0.weight", "0.bias"}, 1: {"0.weight", "1.gamma", "1.beta"}}
    held = left.get(order[2], {n for n, on in before.items() if on})
    assert {n for n, on in flags(net).items() if not on and before[n]} == held
    claims[order[2]].undo()
    assert flags(net) == before


def fail_while_all_is_frozen(net: nn.Cell) -> None:
    with mg.freeze(net, "*"):
        assert [p.name for p in net.trainable_params()] == ["count"]
        raise RuntimeError("half way")


def test_leaving_a_nested_context_by_exception_restores_what_was_off_by_design():
    net = Masked()
    before = flags(net)
    outer = mg.freeze(net, "fc")
    with pytest.raises(RuntimeError, match="half way"):
        fail_while_all_is_frozen(net)
    assert not mg.is_frozen(net, "head")
    assert mg.is_frozen(net, "fc")
    outer.undo()
    assert flags(net) == before
    assert net.mask.requires_grad is False


def test_a_flag_set_by_hand_before_a_freeze_comes_back_when_it_is_undone():
    net = dense_pair()
    mg.freeze(net, "0").undo()
    net[0].weight.requires_grad = False
    with mg.freeze(net, "0"):
        pass
    assert flags(net) == {"0.weight": False, "0.bias": True, "2.weight": True, "2.bias": True}


def test_unfreeze_lifts_every_claim_and_its_undo_puts_them_back():
    net = dense_pair()
    first, second = mg.freeze(net, "0"), mg.freeze(net, "0.weight")
    with mg.unfreeze(net, "0.weight") as thawed:
        assert thawed.changed == ["0.weight"]
        assert flags(net)["0.weight"]
        assert not flags(net)["0.bias"]
    assert mg.is_frozen(net, "0")
    second.undo()
    assert mg.is_frozen(net, "0.weight")
    first.undo()
    assert mg.frozen_state(net) == "trainable"


def test_undoing_an_unfreeze_does_not_bring_back_a_freeze_undone_meanwhile():
    net = dense_pair()
    frozen = mg.freeze(net, "0")
    thawed = mg.unfreeze(net, "0")
    frozen.undo()
    thawed.undo()
    assert mg.frozen_state(net) == "trainable"


def test_what_the_model_made_untrainable_stays_and_is_named():
    net = Masked()
    with pytest.warns(
        UserWarning, match=r"1 parameters stay untrainable.*: mask; unfreeze\(…, force=True\)"
    ):
        thawed = mg.unfreeze(net)
    assert "mask" not in thawed.names
    assert net.mask.requires_grad is False


def test_force_turns_on_a_buffer_but_never_statistics_or_integers():
    net = Masked()
    thawed = mg.unfreeze(net, "*", force=True)
    assert "mask" in thawed.changed
    on = {n for n, flag in flags(net).items() if flag}
    assert not on & {"norm.moving_mean", "norm.moving_variance"}
    assert "count" not in thawed.names
    thawed.undo()
    assert net.mask.requires_grad is False


def test_statistics_named_alone_are_refused():
    with pytest.raises(
        ValueError,
        match=r"unfreeze\('1.moving_mean'\) matched 1 parameters, none of them trainable",
    ):
        mg.unfreeze(normed(), "1.moving_mean")


def test_a_freeze_claims_what_the_model_made_untrainable_and_leaves_its_flag():
    net = Masked()
    frozen = mg.freeze(net, "mask")
    assert (frozen.names, frozen.changed) == (["mask"], [])
    assert mg.is_frozen(net, "mask")
    frozen.undo()
    assert not net.mask.requires_grad
    mg.freeze(net, "mask")
    with pytest.warns(UserWarning, match="1 parameters stay untrainable.*mask"):
        mg.unfreeze(net)
    assert not net.mask.requires_grad


def test_statistics_made_trainable_by_a_blanket_flag_are_not_trainable_by_design():
    net = normed()
    for parameter in net.get_parameters():
        parameter.requires_grad = True
    assert "1.moving_mean" not in mg.freeze(net, "*").names


def test_no_pattern_is_an_error_for_freeze():
    with pytest.raises(ValueError, match="pattern"):
        mg.freeze(dense_pair())


def test_freezing_something_that_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"is a list; give the Cell"):
        mg.freeze([], "a")  # pyright: ignore[reportArgumentType]


def test_one_of_three_patterns_misspelt_changes_nothing():
    net = dense_pair()
    with pytest.raises(mg.NoMatchError, match=r"'2\.wieght'.*did you mean '2\.weight'"):
        mg.freeze(net, "0", "2.wieght", "2.bias")
    assert mg.frozen_state(net) == "trainable"


def test_the_state_of_a_half_frozen_layer_is_mixed():
    net = dense_pair()
    mg.freeze(net, "0.bias")
    assert mg.frozen_state(net, "0") == "mixed"
    assert mg.frozen_state(net, "0.bias") == "frozen"
    assert mg.frozen_state(net, "2") == "trainable"
    assert not mg.is_frozen(net, "0")


def test_a_flag_set_by_hand_counts_for_the_weights():
    net = dense_pair()
    mg.freeze(net, "2").undo()
    net[0].weight.requires_grad = False
    net[0].bias.requires_grad = False
    assert mg.frozen_state(net, "0") == "frozen"
    mg.unfreeze(net, "0")
    assert mg.frozen_state(net, "0") == "trainable"


@pytest.mark.parametrize("path", ["embedding.table", "output.weight"])
def test_a_tied_weight_is_frozen_by_each_of_its_paths(path: str):
    net = Tied()
    name = mg.select(net, path).names
    assert mg.freeze(net, path).names == name
    assert net.embedding.table is net.output.weight
    assert not net.embedding.table.requires_grad
    assert net.output.bias.requires_grad


def test_claims_survive_a_deep_copy_and_the_two_networks_part_ways():
    net = normed()
    frozen = mg.freeze(net, "0", "1")
    twin = copy.deepcopy(net)
    assert mg.is_frozen(twin, "0")
    frozen.undo()
    assert mg.frozen_state(net) == "trainable"
    assert mg.is_frozen(twin, "0")
    mg.unfreeze(twin)
    assert flags(twin) == flags(net)


def test_a_weight_frozen_in_one_network_is_frozen_in_another_that_shares_it():
    net = Tied()
    mg.freeze(net.embedding, "*")
    assert mg.is_frozen(net.output, "weight")
    mg.unfreeze(net.output)
    assert mg.frozen_state(net) == "trainable"


def test_a_claim_is_seen_from_a_network_built_around_it_later():
    net = dense_pair()
    mg.freeze(net, "0")
    around = nn.WithLossCell(net, nn.MSELoss())
    assert mg.is_frozen(around, "_backbone.0")
    mg.unfreeze(around)
    assert mg.frozen_state(net) == "trainable"


def test_a_frozen_integer_network_has_nothing_to_freeze():
    class Counter(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count = Parameter(Tensor(np.zeros(1), ms.int32), name="count")

    with pytest.raises(ValueError, match="running statistics and integers never train"):
        mg.freeze(Counter(), "*")


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(lambda net: setattr(net[0].weight, "require_grad", False), id="misspelt"),
        pytest.param(lambda net: setattr(net[0], "requires_grad", False), id="of-the-cell"),
        pytest.param(lambda net: net[0].set_grad(False), id="set_grad"),
    ],
)
def test_what_looks_like_freezing_and_is_not_is_not_called_frozen(attempt):
    net = dense_pair()
    attempt(net)
    assert mg.frozen_state(net) == "trainable"
    assert len(net.trainable_params()) == 4


def test_freezing_warns_of_nothing_where_nothing_is_amiss(recwarn: pytest.WarningsRecorder):
    mg.freeze(normed(), "*")
    assert not recwarn.list
