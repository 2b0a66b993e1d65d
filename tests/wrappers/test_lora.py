"""Low-rank adapters: against the formula in NumPy and hand-written plain MindSpore."""

from __future__ import annotations

import copy
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops

import msgrad as mg

pytestmark = pytest.mark.usefixtures("mode")
RNG = np.random.default_rng(0)
X, Y = (Tensor(RNG.standard_normal(s).astype(np.float32)) for s in ((5, 4), (5, 3)))


class Block(nn.Cell):
    """Projections named as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.v_proj = nn.Dense(4, 6), mint.nn.Linear(4, 6)
        self.out = nn.Dense(6, 3)

    def construct(self, x: Tensor) -> Tensor:
        return self.out(ops.tanh(self.q_proj(x) * self.v_proj(x)))


def made(**options: Any) -> nn.SequentialCell:
    ms.set_seed(3)
    net = nn.SequentialCell(Block())
    mg.freeze(net, "*")
    mg.wrap(net, "*.{q,v}_proj", wrapper=lambda cell: mg.LoRA(cell, **options))
    return net


def numbers(net: nn.Cell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def draw(net: nn.Cell) -> None:
    """Give both factors values, as training does."""
    for parameter in net.trainable_params():
        value = RNG.standard_normal(parameter.shape).astype(np.float32)
        ops.assign(parameter, Tensor(value))


def forward(w: dict[str, np.ndarray], factor: float) -> np.ndarray:
    def projected(name: str) -> np.ndarray:
        weight = w[f"0.{name}.weight"]
        weight = weight + factor * w[f"0.{name}.lora_B.weight"] @ w[f"0.{name}.lora_A.weight"]
        return X.asnumpy() @ weight.T + w[f"0.{name}.bias"]

    hidden = np.tanh(projected("q_proj") * projected("v_proj"))
    return hidden @ w["0.out.weight"].T + w["0.out.bias"]


def test_it_gives_at_first_what_the_layer_gave_and_then_the_formula():
    net = made(rank=2, alpha=5)
    w = numbers(net)
    assert not w["0.q_proj.lora_B.weight"].any()
    assert w["0.v_proj.lora_A.weight"].shape == (2, 4)
    np.testing.assert_allclose(net(X).asnumpy(), forward(w, 2.5), rtol=1e-5, atol=1e-6)
    draw(net)
    np.testing.assert_allclose(net(X).asnumpy(), forward(numbers(net), 2.5), rtol=1e-4, atol=1e-5)


class ByHand(nn.Cell):
    """The same adapter, written out."""

    def __init__(self, cell: nn.Cell, first: Parameter, second: Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.cell, self.first, self.second = cell, first, second

    def construct(self, x: Tensor) -> Tensor:
        more = ops.matmul(ops.matmul(x, self.first.T), self.second.T)
        return self.cell(x) + 0.5 * more


def test_a_step_trains_the_adapters_as_plain_mindspore_does_and_nothing_else():
    net = made(rank=2, alpha=1)
    before = numbers(net)
    step = mg.TrainStep(net, lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1), nn.MSELoss())
    ms.set_seed(3)
    plain = nn.SequentialCell(Block())
    weights = []
    for name in ("q_proj", "v_proj"):
        cell = getattr(plain[0], name)
        both = [Parameter(before[f"0.{name}.lora_{k}.weight"], f"{name}.{k}") for k in "AB"]
        for mine, right in zip(cell.get_parameters(), ("weight", "bias"), strict=True):
            mine.set_data(Tensor(before[f"0.{name}.{right}"]))
        setattr(plain[0], name, ByHand(cell, *both))
        weights += both
    for name in ("weight", "bias"):
        getattr(plain[0].out, name).set_data(Tensor(before[f"0.out.{name}"]))
    optimizer = nn.AdamWeightDecay(weights, 0.1, weight_decay=0.1)
    loss = nn.WithLossCell(plain, nn.MSELoss())
    grad = ms.value_and_grad(loss, None, weights)
    for _ in range(3):
        step.set_train()(X, Y)
        optimizer(grad(X, Y)[1])
    after = numbers(net)
    adapters = [n for n in after if "lora" in n]
    assert {n for n in after if (after[n] != before[n]).any()} == set(adapters)
    for name, right in zip(adapters, weights, strict=True):
        np.testing.assert_allclose(after[name], right.asnumpy(), rtol=1e-4, atol=1e-6)


def test_merged_it_gives_the_same_and_unmerged_the_bits_are_back_without_compiling():
    net = made(rank=2)
    draw(net)
    before, out = numbers(net), net(X).asnumpy()
    graphs = len(net.compile_cache)
    for _, layer in mg.wrapped(net):
        layer.merge()
        layer.merge()
        assert layer.merged
    w = numbers(net)
    added = w["0.q_proj.weight"] - before["0.q_proj.weight"]
    right = before["0.q_proj.lora_B.weight"] @ before["0.q_proj.lora_A.weight"]
    np.testing.assert_allclose(added, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net(X).asnumpy(), out, rtol=1e-4, atol=1e-5)
    for _, layer in mg.wrapped(net):
        layer.unmerge()
    assert {n: v.tobytes() for n, v in numbers(net).items()} == {
        n: v.tobytes() for n, v in before.items()
    }
    np.testing.assert_array_equal(net(X).asnumpy(), out)
    assert len(net.compile_cache) == graphs


def test_taken_off_merged_it_leaves_a_plain_network_that_may_train():
    net = made(rank=2)
    mg.unfreeze(net, "0.out")
    draw(net)
    out = net(X).asnumpy()
    for _, layer in mg.wrapped(net):
        layer.merge()
    mg.unwrap(net)
    assert isinstance(net[0].q_proj, nn.Dense)
    assert not any("lora" in p.name for p in net.get_parameters())
    np.testing.assert_allclose(net(X).asnumpy(), out, rtol=1e-4, atol=1e-5)
    # the freeze of before still stands, that of the adapter does not
    assert mg.is_frozen(net, "0.q_proj")
    mg.unfreeze(net)
    assert len(net.trainable_params()) == 6


def test_files_have_the_names_of_peft_and_load_both_ways():
    net = made(rank=2)
    draw(net)
    names = mg.save_trainable(net, "adapter_model.safetensors")
    assert names == [p.name for p in net.trainable_params()]
    saved = ms.load_checkpoint("adapter_model.safetensors", format="safetensors")
    assert sorted(saved) == sorted(f"base_model.model.{name}" for name in names)
    again = made(rank=2)
    assert mg.load_weights(again, "adapter_model.safetensors").complete
    for name, value in numbers(net).items():
        assert numbers(again)[name].tobytes() == value.tobytes()
    # a file of somebody else's has no side file, and goes onto any base
    entries = [{"name": name, "data": value * 2} for name, value in saved.items()]
    ms.save_checkpoint(entries, "theirs.safetensors", format="safetensors")
    assert mg.load_weights(again, "theirs.safetensors").loaded == tuple(names)
    name = "0.v_proj.lora_A.weight"
    np.testing.assert_array_equal(numbers(again)[name], 2 * numbers(net)[name])


def test_a_copy_has_adapters_of_its_own():
    net = made(rank=2)
    draw(net)
    twin = copy.deepcopy(net)
    before, out = numbers(net), net(X).asnumpy()
    mg.wrapped(twin)[0][1].merge()
    draw(twin)
    assert {n: v.tobytes() for n, v in numbers(net).items()} == {
        n: v.tobytes() for n, v in before.items()
    }
    np.testing.assert_array_equal(net(X).asnumpy(), out)
    mg.unwrap(twin)
    assert mg.is_frozen(net, "0.q_proj.{weight,bias}")


def test_dropout_is_that_of_the_input_of_the_first_factor_in_training():
    net = made(rank=2, dropout=0.5)
    draw(net)
    net.set_train(False)
    np.testing.assert_allclose(net(X).asnumpy(), forward(numbers(net), 1), rtol=1e-4, atol=1e-5)
    net.set_train()
    assert (net(X).asnumpy() != net(X).asnumpy()).any()


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: mg.LoRA(nn.Conv2d(1, 1, 1)), mg.ArgumentTypeError, "cell Conv2d is no nn.Dense"),
        (lambda: mg.LoRA(nn.Dense(2, 2, activation="relu")), mg.ArgumentError, "an activation"),
        (lambda: mg.LoRA(nn.Dense(2, 2), rank=0), mg.ArgumentError, "rank 0 is no rank"),
        (lambda: mg.LoRA(nn.Dense(2, 2), alpha=float("nan")), mg.ArgumentError, "alpha nan is no"),
        (lambda: mg.LoRA(nn.Dense(2, 2), dropout=1.0), mg.ArgumentError, r"dropout 1\.0 is no sha"),
    ],
    ids=["kind", "activation", "rank", "alpha", "dropout"],
)
def test_what_cannot_be_meant_is_refused(make, error, told):
    with pytest.raises(error, match=told):
        make()
