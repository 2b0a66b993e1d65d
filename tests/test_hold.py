"""What is held at run time keeps its bits and its state, and nothing is compiled for it."""

from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common import api
from mindspore.experimental import optim
from mindspore.train import LearningRateScheduler, Model

import msgrad as mg
from msgrad._masks import Masks

X = Tensor(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))
Y = Tensor(np.zeros((4, 2), np.float32))
HELD, ROWS, NAME_OF_ROWS = "0.weight", [0, 3], "0.bias"
Make = Callable[[list[Parameter]], nn.Cell]


def grouped(parameters: list[Parameter]) -> list[dict]:
    first = [p for p in parameters if p.name in ("2.weight", "0.weight")]
    rest = [p for p in parameters if p.name in ("0.bias", "2.bias")]
    return [{"params": first, "lr": 0.05, "weight_decay": 0.1}, {"params": rest}]


OPTIMIZERS = {
    "sgd": lambda p: nn.SGD(p, 0.1, weight_decay=0.1),
    "sgd-momentum": lambda p: nn.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1),
    "nesterov": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.1, use_nesterov=True),
    "adam": lambda p: nn.Adam(p, 0.1, weight_decay=0.1),
    "adamw": lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1),
    "rmsprop": lambda p: nn.RMSProp(p, 0.1, centered=True, weight_decay=0.1),
    "adagrad": lambda p: nn.Adagrad(p, learning_rate=0.1, weight_decay=0.1),
    "experimental-sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "experimental-adam": lambda p: optim.Adam(p, 0.1, weight_decay=0.1),
    "experimental-adamw": lambda p: optim.AdamW(p, 0.1),
    "adam-grouped": lambda p: nn.Adam(grouped(p), 0.1),
    "adamw-grouped": lambda p: optim.AdamW(grouped(p), 0.1),
    "momentum-dynamic": lambda p: nn.Momentum(p, nn.ExponentialDecayLR(0.1, 0.5, 1), 0.9),
    "adam-rate-list": lambda p: nn.Adam(p, [0.1, 0.05, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1]),
}
ROWS_OF_TABLE = [pytest.param(make, id=name) for name, make in OPTIMIZERS.items()]
FEW = [pytest.param(OPTIMIZERS[name], id=name) for name in ("sgd-momentum", "adamw", "adam")]


def network() -> nn.SequentialCell:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    rng = np.random.default_rng(3)
    for p in net.get_parameters():
        p.set_data(Tensor(rng.normal(size=p.shape).astype(np.float32)))
    return net


class Cell:
    """A train cell of MindSpore; `compiled` counts its graphs."""

    def __init__(self, loss: nn.Cell, optimizer: nn.Cell) -> None:
        self.step = nn.TrainOneStepCell(loss, optimizer).set_train()

    def __call__(self) -> None:
        self.step(X, Y)

    def compiled(self) -> int:
        return len(self.step.compile_cache)


class Functional:
    """A loop of `value_and_grad` and the optimizer."""

    def __init__(self, loss: nn.Cell, optimizer: nn.Cell) -> None:
        self.optimizer = optimizer
        self.gradient = ms.value_and_grad(loss, None, optimizer.parameters)

    def __call__(self) -> None:
        _, gradients = self.gradient(X, Y)
        self.optimizer(gradients)

    def compiled(self) -> int:
        return len(self.optimizer.compile_cache)


class Jitted(Functional):
    """The same in one graph of `mindspore.jit`."""

    def __init__(self, loss: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(loss, optimizer)

        def step(x, y):
            value, gradients = self.gradient(x, y)
            return ops.depend(value, optimizer(gradients))

        self.before = len(api.ms_compile_cache)
        self.step = ms.jit(step)

    def __call__(self) -> None:
        self.step(X, Y)

    def compiled(self) -> int:
        return len(api.ms_compile_cache) - self.before


class Training:
    """One network in training, and the values of its weights and their optimizer state."""

    def __init__(self, make: Make, style: type, *, hold: bool) -> None:
        self.net = network()
        self.inner = make(self.net.trainable_params())
        self.optimizer = mg.HoldOptimizer(self.inner) if hold else self.inner
        self.step = style(nn.WithLossCell(self.net, nn.MSELoss()), self.optimizer)

    def parameters(self) -> dict[str, Parameter]:
        return {p.name: p for p in [*self.net.get_parameters(), *self.inner.get_parameters()]}

    def values(self) -> dict[str, np.ndarray]:
        return {name: p.asnumpy().copy() for name, p in self.parameters().items()}

    def step_and_put_back(self) -> None:
        """Do a step, and write back by hand what should have been held: the oracle."""
        before = self.values()
        self.step()
        for name, p in self.parameters().items():
            value = p.asnumpy().copy()
            if is_of(HELD, name):
                value = before[name]
            elif is_of(NAME_OF_ROWS, name):
                value[ROWS] = before[name][ROWS]
            ops.assign(p, Tensor(value))


def is_of(weight: str, name: str) -> bool:
    return name == weight or name.endswith("." + weight)


def part(name: str, value: np.ndarray) -> bytes:
    return (value[ROWS] if is_of(NAME_OF_ROWS, name) else value).tobytes()


def assert_held_and_the_rest_equals(
    before: dict[str, np.ndarray], held: Training, plain: Training
) -> None:
    """Check both halves of a step in which `HELD` and some rows are held."""
    after, expected = held.values(), plain.values()
    still = {n for n in after if is_of(HELD, n) or is_of(NAME_OF_ROWS, n)}
    assert {n for n in still if part(n, before[n]) != part(n, after[n])} == set()
    moved = {n for n in ("2.weight", "2.bias", NAME_OF_ROWS) if (before[n] != after[n]).any()}
    assert moved == {"2.weight", "2.bias", NAME_OF_ROWS}
    for name in after:
        # two compiled graphs: a few units in the last place
        np.testing.assert_allclose(after[name], expected[name], rtol=2e-6, atol=1e-7, err_msg=name)


def assert_it_holds(make: Make, style: type) -> None:
    held, plain = Training(make, style, hold=True), Training(make, style, hold=False)
    for _ in range(2):
        held.step()
        plain.step()
    compiled = held.step.compiled()
    assert held.optimizer.hold(HELD) == [HELD]
    assert held.optimizer.hold_rows(NAME_OF_ROWS, ROWS) == ROWS
    for number in range(2):
        if number:  # a write from outside to what is held counts for both
            for training in (held, plain):
                ops.assign(training.parameters()[HELD], Tensor(np.full((4, 3), -0.0, np.float32)))
        before = held.values()
        held.step()
        plain.step_and_put_back()
        assert_held_and_the_rest_equals(before, held, plain)
    held.optimizer.release(HELD)
    held.optimizer.release_rows(NAME_OF_ROWS)
    before = held.values()
    held.step()
    plain.step()
    after, expected = held.values(), plain.values()
    assert (before[HELD] != after[HELD]).any()
    assert (before[NAME_OF_ROWS] != after[NAME_OF_ROWS]).all()
    for name in after:
        np.testing.assert_allclose(after[name], expected[name], rtol=2e-6, atol=1e-7, err_msg=name)
    assert held.step.compiled() == compiled


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("make", ROWS_OF_TABLE)
def test_held_weights_rows_and_state_keep_their_bits_under_every_optimizer(make: Make):
    assert_it_holds(make, Cell)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("style", [Functional, Jitted], ids=["functional", "jit"])
@pytest.mark.parametrize("make", FEW)
def test_holding_works_in_every_style_of_training(make: Make, style: type):
    assert_it_holds(make, style)


@pytest.mark.skipif(
    tuple(map(int, ms.__version__.split(".")[:2])) < (2, 10),
    reason="mint.optim.SGD moves nothing on the CPU before 2.10, and in PYNATIVE_MODE",
)
def test_holding_works_under_mint_in_a_graph():
    assert_it_holds(lambda p: mint.optim.SGD(p, 0.1, momentum=0.9), Cell)


def data() -> ms.dataset.GeneratorDataset:
    rows = [(x, y) for x, y in zip(X.asnumpy(), Y.asnumpy(), strict=True)] * 2
    return ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(4)


@pytest.mark.usefixtures("mode")
def test_it_stands_in_model_and_its_callbacks_where_an_optimizer_does():
    net = network()
    optimizer = mg.HoldOptimizer(nn.Momentum(net.trainable_params(), 0.1, 0.0))
    optimizer.hold("0")
    before = mg.Snapshot(net)
    model = Model(net, nn.MSELoss(), optimizer)
    model.train(1, data(), [LearningRateScheduler(lambda rate, step: 0.5)])
    assert before.moved() == ["2.weight", "2.bias"]
    assert optimizer.optimizer.learning_rate.asnumpy() == np.float32(0.5)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        pytest.param(OPTIMIZERS["adam"], nn.Optimizer, id="nn"),
        pytest.param(OPTIMIZERS["experimental-adam"], optim.Optimizer, id="experimental"),
    ],
)
def test_it_is_the_kind_of_optimizer_that_it_holds(make: Make, kind: type):
    inner = make(network().trainable_params())
    outer = mg.HoldOptimizer(inner)
    assert isinstance(outer, kind)
    assert isinstance(outer, mg.HoldOptimizer)
    assert type(outer).__name__ == "HoldOptimizer"
    assert outer.parameters is inner.parameters


def test_methods_and_settings_are_those_of_the_optimizer():
    inner = OPTIMIZERS["momentum-dynamic"](network().trainable_params())
    outer = mg.HoldOptimizer(inner)
    assert outer.learning_rate is inner.learning_rate
    assert outer.get_lr().asnumpy() == inner.get_lr().asnumpy() == np.float32(0.1)
    assert outer.get_lr_parameter(inner.parameters[0]) is inner.learning_rate
    outer.unique = False
    assert inner.unique is False


def test_a_scheduler_of_experimental_drives_the_rate():
    outer = mg.HoldOptimizer(optim.SGD(network().trainable_params(), 0.1))
    scheduler = optim.lr_scheduler.StepLR(outer, step_size=1, gamma=0.5)
    scheduler.step()
    assert float(outer.optimizer.lrs[0].value()) == pytest.approx(0.05)


@pytest.mark.usefixtures("mode")
def test_negative_zero_and_nan_are_held_bit_by_bit():
    net = nn.Dense(2, 2, "ones", has_bias=False)
    step = nn.TrainOneStepCell(net, mg.HoldOptimizer(OPTIMIZERS["adam"]([net.weight]))).set_train()
    special = np.array([[-0.0, np.nan], [np.inf, 1e-45]], np.float32)
    step.optimizer.hold("weight")
    ops.assign(net.weight, Tensor(special))
    step(Tensor(np.ones((1, 2), np.float32)))
    assert net.weight.asnumpy().tobytes() == special.tobytes()


@pytest.mark.usefixtures("mode")
def test_holds_go_along_to_the_optimizer_of_a_new_stage():
    net = network()
    step = mg.TrainStep(
        net, lambda p: mg.HoldOptimizer(OPTIMIZERS["adam"](p)), nn.MSELoss()
    ).set_train()
    step(X, Y)
    step.optimizer.hold("2.weight")
    step.optimizer.hold_rows("2.bias", 1)
    with mg.freeze(net, "0.weight"):
        before = mg.Snapshot(net)
        step(X, Y)
        assert before.moved() == ["0.bias", "2.bias"]
        assert (step.optimizer.held, step.optimizer.held_rows) == (["2.weight"], {"2.bias": [1]})
        step.optimizer.release("2.weight")
    before = mg.Snapshot(net)
    step(X, Y)
    assert before.moved() == ["0.weight", "0.bias", "2.weight", "2.bias"]
    row = before.compare().rows[-1]
    assert (row.name, row.bits_changed) == ("2.bias", 1)


def double(w: Tensor) -> Tensor:
    return w * 2.0


@pytest.mark.usefixtures("mode")
def test_a_change_inside_the_step_counts_too():
    net = network()
    step = mg.TrainStep(
        net,
        lambda p: mg.HoldOptimizer(OPTIMIZERS["sgd-momentum"](p)),
        nn.MSELoss(),
        updates=mg.WeightUpdates(net, {"0.bias": double}, when="after_gradient"),
    ).set_train()
    step.optimizer.hold("0.bias")
    expected = net[0].bias.asnumpy() * 2
    step(X, Y)
    np.testing.assert_array_equal(net[0].bias.asnumpy(), expected)


def test_masks_are_saved_under_the_names_of_the_weights_and_copies_are_not(tmp_path):
    outer = mg.HoldOptimizer(OPTIMIZERS["adam"](network().trainable_params()))
    outer.hold("2.bias")
    ms.save_checkpoint(outer, str(tmp_path / "a.ckpt"))
    saved = ms.load_checkpoint(str(tmp_path / "a.ckpt"))
    masks = {name for name in saved if name.startswith("hold_")}
    weights = ("0.weight", "0.bias", "2.weight", "2.bias")
    assert masks == {f"hold_{what}.{n}" for n in weights for what in ("mask", "flag")}
    other = mg.HoldOptimizer(OPTIMIZERS["adam"](network().trainable_params()))
    assert ms.load_param_into_net(other, saved) == ([], [])
    assert other.held == ["2.bias"]


@pytest.mark.usefixtures("mode")
def test_may_hold_bounds_what_is_kept_and_what_can_be_held():
    net = network()
    optimizer = mg.HoldOptimizer(OPTIMIZERS["adam"](net.trainable_params()), may_hold="*.bias")
    assert [m.name for m in optimizer.masks] == ["hold_mask.0.bias", "hold_mask.2.bias"]
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
    assert optimizer.hold(["*.bias", "!2"]) == ["0.bias"]
    before = mg.Snapshot(net)
    step(X, Y)
    assert before.moved() == ["0.weight", "2.weight", "2.bias"]
    with pytest.raises(mg.ArgumentError, match=r"leaves out 1 of 2 .*: 2\.weight; add .* may_hold"):
        optimizer.hold("2")


@pytest.fixture(scope="module")
def optimizer() -> mg.HoldOptimizer:
    weights = [*network().get_parameters(), Parameter(Tensor(1.0), name="scale")]
    return mg.HoldOptimizer(nn.SGD(weights, 0.1))


@pytest.mark.parametrize(
    ("rows", "held"),
    [
        pytest.param(2, [2], id="number"),
        pytest.param(-1, [3], id="from-the-end"),
        pytest.param(slice(1, 3), [1, 2], id="slice"),
        pytest.param([3, 0, 3], [0, 3], id="list"),
        pytest.param(np.array([False, True, False, True]), [1, 3], id="booleans"),
        pytest.param(Tensor([1, 2]), [1, 2], id="tensor"),
    ],
)
def test_rows_are_given_as_numpy_takes_them(optimizer, rows, held):
    assert optimizer.hold_rows("0.weight", rows) == held
    assert optimizer.held_rows == {"0.weight": held}
    assert optimizer.release_rows("0.weight", held[:1]) == held[1:]
    assert optimizer.release_rows("0.weight") == []


def test_a_weight_whose_rows_are_all_held_is_held(optimizer):
    optimizer.hold_rows("0.weight", [0, 1])
    optimizer.hold_rows("0.weight", [2, 3])
    assert (optimizer.held, optimizer.held_rows) == (["0.weight"], {})
    assert optimizer.release("*") == ["0.weight", "0.bias", "2.weight", "2.bias", "scale"]
    assert (optimizer.held, optimizer.held_rows) == ([], {})


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        pytest.param(
            "0.weight", 4, r"rows 4 do not fit the 4 rows of '0\.weight'; .*-4 to 3", id="4"
        ),
        pytest.param("0.weight", 1.5, r"rows 1\.5 do not fit the 4 rows", id="float"),
        pytest.param("0.weight", [True], r"rows \[True\] do not fit .* or 4 booleans", id="bools"),
        pytest.param("0.weight", [], r"rows \[\] are none of the 4 rows", id="none"),
        pytest.param("0", 1, r"name '0' is that of 2 weights; give that of one", id="two"),
        pytest.param("scale", 0, r"'scale' is a number without rows; hold it whole", id="0-d"),
    ],
)
def test_rows_that_do_not_exist_are_refused(optimizer, name, rows, message):
    with pytest.raises(mg.ArgumentError, match=message):
        optimizer.hold_rows(name, rows)
    assert (optimizer.held, optimizer.held_rows) == ([], {})


def test_rows_are_refused_where_the_state_has_other_shapes():
    weight = Parameter(Tensor(np.ones((4, 3), np.float32)), name="w")
    factor = Parameter(Tensor(np.ones(4, np.float32)), name="row_factor.w")
    masks = Masks([("w", weight), ("w", factor)])
    with pytest.raises(mg.ArgumentError, match=r"'w' \(4, 3\) .* shape \(4,\), .* hold it whole"):
        masks.set_rows("w", 1, held=True)
    masks.set("w", held=True)
    assert [(m.name, m.asnumpy().all()) for m in masks.parameters] == [
        ("hold_mask.w", True), ("hold_mask.row_factor.w", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "error", "message"),
    [
        pytest.param((), mg.ArgumentError, "patterns .* empty", id="no-pattern"),
        pytest.param(("0.wieght",), mg.NoMatchError, r"did you mean '0\.weight'", id="misspelt"),
        pytest.param((3,), mg.ArgumentTypeError, "pattern 3 is no name; give strings", id="type"),
        pytest.param(
            (Parameter(Tensor(1.0), name="b"),), mg.ArgumentError, "'b' is no parameter", id="other"
        ),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(optimizer, patterns, error, message):
    with pytest.raises(error, match=message):
        optimizer.hold(*patterns)
    assert optimizer.held == []


def test_parameters_and_selections_are_patterns():
    net = network()
    optimizer = mg.HoldOptimizer(nn.SGD(net.trainable_params(), 0.1))
    assert optimizer.hold(net[2].bias, mg.select(net, "0")) == ["0.weight", "0.bias", "2.bias"]


def test_what_is_no_optimizer_or_holds_already_is_refused(optimizer):
    with pytest.raises(mg.ArgumentTypeError, match=r"optimizer type is no optimizer; give one"):
        mg.HoldOptimizer(nn.SGD)
    with pytest.raises(mg.ArgumentError, match="can hold already; use its hold and release"):
        mg.HoldOptimizer(optimizer)
