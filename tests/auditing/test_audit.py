"""The audit: it restores everything, tells the truth, and costs what it says."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dataset as ds
from mindspore.common.api import _cell_graph_executor  # pyright: ignore  # private, 2.7 to 2.10
from mindspore.experimental import optim

import msgrad as mg
from tests.auditing.gallery.data import Net, batch, train_cell
from tests.auditing.gallery.healthy import Accumulating
from tests.auditing.gallery.leaking import MaskedGradients
from tests.nets.accumulating_nets import InAttributes, InParameters, step_function
from tests.nets.audit_nets import Buffered, Layers, Scaling, ThreeInputs, squared, step_inside_out
from tests.nets.step_nets import AccumulatingStep

old = tuple(int(part) for part in ms.__version__.split(".")[:2]) < (2, 8)


def adamw(parameters: list[Parameter]) -> nn.Cell:
    return nn.AdamWeightDecay(parameters, 0.01, weight_decay=0.1)


def train_step(net: nn.Cell, **options: Any) -> mg.TrainStep:
    return mg.TrainStep(net, adamw, nn.MSELoss(), **options).set_train()


def dataset() -> Any:
    x, y = (np.tile(value.asnumpy(), (2, 1)) for value in batch())
    return ds.NumpySlicesDataset({"x": x, "y": y}, shuffle=True).batch(4)


def rows(audit: mg.Audit) -> dict[str, Any]:
    return {row.name: row for row in audit.rows}


# --- everything is as before


def _of_frozen_training() -> tuple[list[nn.Cell], Callable[[], mg.Audit]]:
    net = Layers()
    mg.freeze(net, "norm")
    step = train_step(net, updates=mg.MovingAverage(net, decay=0.5))
    step(*batch())
    return [step, step.inner], lambda: mg.audit(step, *batch())


def _of_a_train_cell() -> tuple[list[nn.Cell], Callable[[], mg.Audit]]:
    net = Layers()
    step = train_cell(net, nn.Adam(net.trainable_params(), nn.ExponentialDecayLR(0.1, 0.9, 1)))
    step(*batch())
    return [step], lambda: mg.audit(step, *batch())


def _of_a_cell_of_ones_own() -> tuple[list[nn.Cell], Callable[[], mg.Audit]]:
    net = squared(Layers())
    step = Accumulating(net, nn.Momentum(net.trainable_params(), 0.1, 0.9)).set_train()
    step(*batch())
    return [step], lambda: mg.audit(step, *batch())


def _of_a_function() -> tuple[list[nn.Cell], Callable[[], mg.Audit]]:
    net = Layers().set_train()
    optimizer = optim.AdamW(net.trainable_params(), 0.1)
    step = step_inside_out(net, optimizer)
    step(*batch())
    return [net, optimizer], lambda: mg.audit(step, *batch(), net=net, optimizer=optimizer)


def _of_a_model() -> tuple[list[nn.Cell], Callable[[], mg.Audit]]:
    net = Layers()
    optimizer = mg.HoldOptimizer(nn.Momentum(net.trainable_params(), 0.1, 0.9))
    optimizer.hold("fc")
    model = ms.Model(net, nn.MSELoss(), optimizer)
    model.train(1, dataset())
    model.train_network.set_train(False)
    mg.freeze(net, "norm")
    return [model.train_network], lambda: mg.audit(model, dataset())


SUBJECTS = [
    pytest.param(_of_frozen_training, id="train-step"),
    pytest.param(_of_a_train_cell, id="train-cell"),
    pytest.param(_of_a_cell_of_ones_own, id="cell-of-ones-own"),
    pytest.param(_of_a_function, id="function"),
    pytest.param(_of_a_model, id="model"),
]


def tensors(cells: list[nn.Cell]) -> Iterator[Tensor]:
    """Find all parameters by plain Python: of every cell, in its lists, hidden or not."""
    for cell in cells:
        for part in [cell, *(c for _, c in cell.cells_and_names())]:
            for value in [*vars(part)["_params"].values(), *vars(part).values()]:
                inside = value if isinstance(value, (list, tuple)) else [value]
                yield from (p for p in inside if isinstance(p, Parameter))


def content(cells: list[nn.Cell]) -> dict[int, bytes]:
    return {id(p): p.asnumpy().tobytes() for p in tensors(cells)}


def modes_of(cells: list[nn.Cell]) -> list[tuple[bool, str]]:
    return [(c.training, c.phase) for cell in cells for _, c in cell.cells_and_names()]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("make", SUBJECTS)
def test_weights_state_counters_modes_and_seeds_are_as_before(
    make: Callable[[], tuple[list[nn.Cell], Callable[[], mg.Audit]]],
):
    cells, audit = make()
    before, modes = content(cells), modes_of(cells)
    seeds = (
        random.getstate(),
        pickle.dumps(np.random.get_state()),
        ms.get_rng_state().asnumpy(),
    )
    assert any(row.bits_changed for row in audit().rows)
    assert content(cells) == before
    assert modes_of(cells) == modes
    assert random.getstate() == seeds[0]
    assert pickle.dumps(np.random.get_state()) == seeds[1]
    assert np.array_equal(ms.get_rng_state().asnumpy(), seeds[2])


@pytest.mark.usefixtures("mode")
def test_the_steps_after_an_audit_are_those_of_a_run_without_one():
    weights = []
    for audited in (False, True):
        ms.set_seed(5)
        net = Layers()
        step = train_step(net)
        step(*batch())
        if audited:
            assert mg.audit(step, *batch()).ok
            assert step.position == (1, 0)
        step(*batch())
        weights.append({p.name: p.asnumpy().copy() for p in net.get_parameters()})
    plain, after = weights
    assert plain.keys() == after.keys()
    for name, value in plain.items():
        # sums of floats may differ in their last bits from launch to launch on the CPU
        np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", [InParameters, InAttributes])
def test_sums_of_gradients_in_an_object_of_the_users_are_put_back(kind: Any):
    net = nn.Dense(2, 1, "ones", has_bias=False)
    optimizer = nn.SGD(net.trainable_params(), 0.125)
    take = kind(optimizer)
    train = step_function(net, optimizer, take)
    x, label = Tensor([[1.0, 2.0]]), Tensor([[0.0]])
    train(x, label)
    assert mg.audit(train, x, label, net=net, optimizer=optimizer).problems == []
    assert int(take.calls if kind is InAttributes else take.counter.asnumpy()) == 1
    assert len(take.sums) == 1
    assert take.sums[0].asnumpy().tolist() == [[2.0, 4.0]]
    for _ in range(2):
        train(x, label)
    # one step by the mean gradient of the three
    np.testing.assert_allclose(net.weight.asnumpy(), [[1 - 0.125 * 6, 1 - 0.125 * 12]], rtol=1e-6)


class Counting(nn.TrainOneStepCell):
    """A train cell that keeps a number and a list beside its parameters."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.calls, self.losses = 0, []

    def __call__(self, *inputs: Any) -> Any:
        self.calls += 1
        loss = super().__call__(*inputs)
        self.losses.append(loss)
        return loss


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "train-step"])
def test_attributes_of_a_train_cell_are_put_back(plain: bool):
    net = Layers()
    if plain:
        loss = nn.WithLossCell(net, nn.MSELoss())
        step = Counting(loss, nn.SGD(net.trainable_params(), 0.1)).set_train()
    else:
        step = mg.TrainStep(
            net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), train_cell=Counting
        ).set_train()
    step(*batch())
    cell = step if plain else step.inner
    mg.audit(step, *batch())
    assert (cell.calls, len(cell.losses)) == (1, 1)


def zero_before_the_head() -> nn.SequentialCell:
    """Two layers of which the second begins at zero, as an adapter does."""
    first = nn.Dense(2, 2, "ones", has_bias=False)
    return nn.SequentialCell(first, nn.Dense(2, 1, "zeros", has_bias=False))


STARTS = [
    pytest.param(1, None, "zero", "its gradient is 0 in this step, and 9", id="one-step"),
    pytest.param(3, None, "trained", "it moved", id="three-steps"),
    pytest.param(
        1,
        AccumulatingStep,
        "zero",
        "its gradient is 0 in this step, as 1.weight behind it begins at zero; give more steps",
        id="amid-accumulation",
    ),
]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(("steps", "train_cell", "verdict", "reason"), STARTS)
def test_what_stands_before_a_layer_that_begins_at_zero_is_not_called_dead(
    steps: int, train_cell: Any, verdict: str, reason: str
):
    net = zero_before_the_head()
    step = mg.TrainStep(net, lambda p: nn.SGD(p, 0.1), nn.MSELoss(), train_cell=train_cell)
    audit = mg.audit(step.set_train(), Tensor([[1.0, 2.0]]), Tensor([[1.0]]), steps=steps)
    row = audit.rows[0]
    assert (row.gradient, row.verdict) == (0.0, verdict)
    assert row.reason.startswith(reason)
    assert net[1].weight.asnumpy().tolist() == [[0.0, 0.0]]


class Breaking(nn.Cell):
    """Does a step and then fails."""

    def __init__(self, step: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.step = step

    def __call__(self, *inputs: Any) -> Any:
        self.step(*inputs)
        raise KeyError("a fault of the user's")


def test_everything_is_restored_where_the_step_fails():
    net = Net()
    step = Breaking(train_cell(net, nn.SGD(net.trainable_params(), 0.1)))
    before = content([step])
    with pytest.raises(KeyError, match="a fault of the user's"):
        mg.audit(step, *batch())
    assert content([step]) == before


def test_a_hidden_counter_and_a_buffer_are_watched_and_restored(
    capfd: pytest.CaptureFixture[str],
):
    net = Buffered()
    step = train_cell(net, nn.SGD(net.trainable_params(), 0.1))
    audit = mg.audit(step, *batch())
    assert rows(audit)["_backbone.shift"].reason == "buffer, no optimizer moves it"
    capfd.readouterr()
    step(*batch())
    # the counter stands at 0 again: the first call prints
    assert "weight" in capfd.readouterr().out


# --- what it says is true


def test_the_numbers_are_those_of_plain_mindspore():
    net = Net()
    groups = [
        {"params": net.fc1.trainable_params(), "lr": 0.5, "weight_decay": 0.25},
        {"params": net.fc2.trainable_params() + net.head.trainable_params()},
    ]
    loss = squared(net)
    gradients = ops.GradOperation(get_by_list=True)(loss, net.trainable_params())(*batch())
    true = {p.name: g.asnumpy() for p, g in zip(net.trainable_params(), gradients, strict=True)}
    step = nn.TrainOneStepCell(loss, nn.SGD(groups, 0.125)).set_train()
    found = rows(mg.audit(step, *batch(), steps=1))
    first = found["fc1.weight"]
    change = 0.5 * (true["fc1.weight"] + 0.25 * net.fc1.weight.asnumpy())
    assert (first.shape, first.dtype, first.lr, first.weight_decay) == (
        (4, 3),
        "float32",
        0.5,
        0.25,
    )
    assert (found["head.bias"].lr, found["head.bias"].weight_decay) == (0.125, 0.0)
    assert first.gradient == pytest.approx(np.linalg.norm(true["fc1.weight"]), rel=1e-5)
    assert first.max_change == pytest.approx(np.abs(change).max(), rel=1e-4)
    assert first.l2 == pytest.approx(np.linalg.norm(change), rel=1e-4)
    assert first.bits_changed == 12
    assert first.in_optimizer
    assert first.requires_grad


def test_optimizer_state_that_moves_is_told_from_state_that_does_not():
    net = Net()
    optimizer = mg.HoldOptimizer(nn.Adam(net.trainable_params(), 0.1))
    optimizer.hold("fc1")
    found = rows(mg.audit(train_cell(net, optimizer), *batch()))
    assert found["fc2.weight"].state_changed is True
    assert (found["fc1.weight"].state_changed, found["fc1.weight"].rule) == (False, "hold")
    frozen = Net()
    mg.freeze(frozen, "fc1")
    found = rows(mg.audit(train_step(frozen), *batch()))
    assert (found["fc1.weight"].state_changed, found["fc1.weight"].rule) == (None, "freeze('fc1')")


def test_a_sign_of_zero_is_a_change_and_the_same_nan_is_none():
    net = nn.Dense(3, 2, bias_init="zeros")
    ops.assign(net.weight, Tensor(np.full((2, 3), np.nan, np.float32)))
    mg.freeze(net, "bias")
    optimizer = nn.SGD(net.trainable_params(), 0.1)

    def step(x: Tensor) -> Tensor:
        ops.assign(net.bias, -net.bias)
        return net(x).sum()

    found = rows(mg.audit(step, batch()[0], steps=1, net=net, optimizer=optimizer))
    bias, weight = found["bias"], found["weight"]
    assert (bias.verdict, bias.bits_changed, bias.max_change) == ("leaks", 2, 0.0)
    assert "yet the signs of zeros changed by an assignment in the step" in bias.reason
    assert (weight.verdict, weight.bits_changed) == ("not finite", 0)


def test_dropout_is_named_and_is_no_fault():
    net = Layers(rate=0.5)
    audit = mg.audit(train_step(net), *batch())
    (finding,) = audit.findings
    assert (finding.kind, finding.problem) == ("dropout", False)
    assert "dropout is active in _backbone.drop: its stream cannot be restored" in finding.message
    assert audit.ok


def test_an_update_forced_on_a_frozen_weight_is_listed_and_is_no_fault():
    net = Net()
    mg.freeze(net, "fc1")
    halve = mg.WeightUpdates(net, {"fc1.weight": mg.rules.multiply(0.5)}, "after_step", force=True)
    audit = mg.audit(train_step(net, updates=halve), *batch())
    (finding,) = audit.findings
    assert finding.names == ("fc1.weight",)
    assert "a weight update changes fc1.weight, which are frozen, as force=True asks" in (
        finding.message
    )
    assert rows(audit)["fc1.weight"].verdict == "trained"
    assert rows(audit)["fc1.bias"].verdict == "held"
    assert audit.ok


def test_a_wrapper_that_multiplies_by_zero_is_named():
    net = Net()
    mg.scale_gradient(net, "fc2", scale=0.0)
    audit = mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())
    row = rows(audit)["fc1.weight"]
    assert (row.verdict, row.gradient) == ("dead", 0.0)
    assert "ScaleGradient at '_backbone.fc2' has the factor 0" in row.reason


def test_more_steps_see_what_is_summed_over_several():
    net = squared(Net())
    step = Accumulating(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    one = mg.audit(step, *batch(), steps=1)
    assert "the optimizer was not called" in one.problems[0]
    two = mg.audit(step, *batch(), steps=2)
    assert two.ok
    single = ops.GradOperation(get_by_list=True)(net, net.trainable_params())(*batch())[0]
    # what the optimizer gets is the sum over two calls
    norm = 2 * np.linalg.norm(single.asnumpy())
    assert rows(two)["fc1.weight"].gradient == pytest.approx(norm, rel=1e-4)


@pytest.mark.usefixtures("mode")
def test_a_train_cell_that_calls_its_network_differently_is_seen_from_its_optimizer():
    net = ThreeInputs()
    step = Scaling(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    found = rows(mg.audit(step, *batch()))
    norms = [found[name].gradient for name in ("fc.weight", "fc.bias")]
    # clipped by the train cell: that is what the optimizer gets
    assert np.linalg.norm(norms) == pytest.approx(0.01, rel=1e-3)
    assert found["fc.weight"].verdict == "trained"
    assert found["cut.weight"].verdict == "unreached"
    assert "none seen in 7 trials" in found["cut.weight"].reason


def test_a_function_that_hides_what_it_differentiates_is_seen_from_its_optimizer():
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    found = rows(mg.audit(step_inside_out(net, optimizer), *batch(), net=net, optimizer=optimizer))
    forward = ops.GradOperation(get_by_list=True)(squared(net), net.trainable_params())
    norm = np.linalg.norm(forward(*batch())[0].asnumpy())
    # the step sums where the mean is over 8 elements
    assert found["fc1.weight"].gradient == pytest.approx(8 * norm, rel=1e-4)
    assert {row.verdict for row in found.values()} == {"trained"}


@pytest.mark.skipif(not old, reason="MindSpore 2.8 and later read the flag at each step")
def test_a_flag_that_mindspore_2_7_keeps_is_named():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = Net()
    net.fc1.weight.requires_grad = False
    train_cell(net, nn.SGD(net.trainable_params(), 0.1))(*batch())
    net.fc1.weight.requires_grad = True
    audit = mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())
    (problem,) = audit.problems
    assert problem.startswith("fc1.weight: still: MindSpore keeps it at a zero gradient")


# --- what it costs


class Compiles:
    """Counts the graphs that MindSpore compiles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        compile_ = type(_cell_graph_executor).compile

        def counted(executor: Any, *args: Any, **kwargs: Any) -> Any:
            phase, fresh = compile_(executor, *args, **kwargs)
            self.count += fresh
            return phase, fresh

        monkeypatch.setattr(type(_cell_graph_executor), "compile", counted)


def test_a_train_step_costs_two_compiles_and_a_used_one_costs_one(monkeypatch: pytest.MonkeyPatch):
    compiles = Compiles(monkeypatch)
    step = train_step(Net())
    assert mg.audit(step, *batch()).ok
    assert (compiles.count, step.compilations) == (2, 1)
    step(*batch())
    assert compiles.count == 2
    assert mg.audit(step, *batch()).ok
    assert (compiles.count, step.compilations) == (3, 1)


def test_a_foreign_train_cell_costs_two_more_and_keeps_its_graph(monkeypatch: pytest.MonkeyPatch):
    net = squared(Net())
    step = MaskedGradients(net, nn.SGD(net.trainable_params(), 0.1)).set_train()
    step(*batch())
    graphs = set(step.compile_cache)
    compiles = Compiles(monkeypatch)
    audit = mg.audit(step, *batch())
    assert step.compile_cache == graphs
    assert "the train cell hands 0 to the optimizer" in rows(audit)["fc1.weight"].reason
    assert compiles.count == 2
    step(*batch())
    assert compiles.count == 2


# --- the audit as an object


def test_problems_come_with_the_worst_first_and_check_raises_them():
    net = Net()
    step = train_cell(net, nn.Adam(net.trainable_params(), 0.1))
    mg.freeze(net, "fc1", "fc2", "head.weight")
    audit = mg.audit(step, *batch())
    with pytest.raises(mg.AuditError, match=r"audit found 5 problems\nfc1.weight: leaks: frozen"):
        audit.check()
    ops.assign(net.head.bias, Tensor([np.nan, 0.0]))
    audit = mg.audit(step, *batch())
    assert audit.problems[0] == "head.bias is not finite before the first step"
    with pytest.raises(AssertionError, match=r"audit found 7 problems\n(.+\n){5}and 2 more"):
        audit.check()
    assert repr(audit) == "Audit(6 not finite; 7 problems)"


def test_a_clean_audit_passes_its_check():
    audit = mg.audit(train_step(Net()), *batch())
    audit.check()
    assert (audit.ok, audit.problems, audit.steps) == (True, [], 3)
    assert {k: n for k, n in audit.counts.items() if n} == {"trained": 6}


def test_json_holds_all_of_it_and_no_bare_nan(tmp_path: Any):
    net = Net()
    ops.assign(net.fc1.bias, Tensor([np.inf, 0.0, 0.0, 0.0]))
    audit = mg.audit(train_cell(net, nn.SGD(net.trainable_params(), 0.1)), *batch())
    text = audit.to_json(tmp_path / "deep" / "audit.json")
    assert (tmp_path / "deep" / "audit.json").read_text(encoding="utf-8") == text + "\n"
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["ok"] is False
    assert content["counts"]["not finite"] == sum(r.verdict == "not finite" for r in audit.rows)
    assert [row["name"] for row in content["rows"]] == [row.name for row in audit.rows]
    assert content["findings"][0]["kind"] == "not finite"


# --- what it refuses


REFUSED = [
    pytest.param(lambda: mg.audit(train_step(Net())), "audit got no inputs; give one", id="inputs"),
    pytest.param(
        lambda: mg.audit(train_step(Net()), *batch(), steps=0), "steps 0 is no number", id="steps"
    ),
    pytest.param(
        lambda: mg.audit(Net(), *batch()), "step Net has no optimizer among its cells", id="net"
    ),
    pytest.param(
        lambda: mg.audit(3, *batch()),  # pyright: ignore[reportArgumentType]
        "step 3 cannot be called; give a TrainStep",
        id="number",
    ),
    pytest.param(
        lambda: mg.audit(batch, *batch()),
        r"step 'batch' is a function.*give net= and",
        id="function",
    ),
    pytest.param(
        lambda: mg.audit(train_step(Net()), *batch(), net=Net()),
        "net= and optimizer= go with a function",
        id="net-of-a-cell",
    ),
    pytest.param(
        lambda: mg.audit(ms.Model(Net()), *batch()),
        "inputs of a Model are 2 values; give one dataset",
        id="model",
    ),
    pytest.param(
        lambda: mg.audit(train_step(Net()), *batch(), held="fc9"),
        "pattern 'fc9' matched none",
        id="held",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_audited_is_refused_with_the_remedy(
    call: Callable[[], mg.Audit], message: str
):
    with pytest.raises(ValueError, match=message):
        call()
