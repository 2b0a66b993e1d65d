"""The monitor: what it records, against NumPy and gradients by MindSpore alone."""

from __future__ import annotations

import copy
import json
import re
import sys
import types
from itertools import combinations

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from msgrad.auditing._distances import DeviceDistances, HostDistances
from msgrad.auditing._monitor_plot import draw_records
from tests.nets.shared import Tied

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype(np.float32)
Y = RNG.normal(size=(12, 2)).astype(np.float32)
BATCH = Tensor(X[:4]), Tensor(Y[:4])


def mlp() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 2))


def data():
    return ds.NumpySlicesDataset((X, Y), column_names=["x", "y"], shuffle=False).batch(4)


def momentum(parameters):
    return nn.Momentum(parameters, 0.1, 0.9)


def weights_of(net):
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def distance(after, before, layer):
    """The Euclidean distance of one layer, by NumPy."""
    parts = [after[n] - before[n] for n in after if n.startswith(f"{layer}.")]
    return float(np.linalg.norm(np.concatenate([part.ravel() for part in parts])))


def gradient_norms(net, x, y):
    """The norms of the gradients of each layer, by MindSpore alone."""
    weights = ms.ParameterTuple(net.get_parameters())
    forward = nn.WithLossCell(net, nn.MSELoss())
    found = ops.GradOperation(get_by_list=True)(forward, weights)(Tensor(x), Tensor(y))
    named = {p.name: g.asnumpy() for p, g in zip(weights, found, strict=True)}
    zeros = {name: np.zeros_like(value) for name, value in named.items()}
    return {layer: distance(named, zeros, layer) for layer in ("0", "2")}


@pytest.mark.usefixtures("mode")
def test_a_record_is_what_numpy_and_mindspores_own_gradient_say():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    monitor = mg.WeightMonitor(net, "*", every=2)
    monitor.attach(step)
    states = [weights_of(net)]
    for number in range(1, 5):
        norms = gradient_norms(net, X[:4], Y[:4])
        with monitor.step(number):
            step(*BATCH)
        states.append(weights_of(net))
    assert [(r.step, r.layer) for r in monitor.records] == [(2, "0"), (2, "2"), (4, "0"), (4, "2")]
    zeros = {name: np.zeros_like(value) for name, value in states[0].items()}
    for record in monitor.records[2:]:
        assert record.since_start == pytest.approx(distance(states[4], states[0], record.layer))
        assert record.since_last == pytest.approx(distance(states[4], states[2], record.layer))
        assert record.update == pytest.approx(distance(states[4], states[3], record.layer))
        assert record.weight == pytest.approx(distance(states[4], zeros, record.layer))
        assert record.gradient == pytest.approx(norms[record.layer], rel=1e-4)
        assert record.ratio == pytest.approx((record.update or 0.0) / record.weight)


def by_train_step(net):
    return ms.Model(mg.TrainStep(net, momentum, nn.MSELoss()))


def by_hand(net):
    return ms.Model(net, nn.MSELoss(), momentum(net.trainable_params()))


MODELS = [pytest.param(by_train_step, id="train-step"), pytest.param(by_hand, id="plain")]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("make", MODELS)
def test_as_a_callback_it_records_in_turn_and_the_run_is_the_same_without_it(make):
    initial = mlp()
    nets = [copy.deepcopy(initial) for _ in range(2)]
    start = weights_of(initial)
    norms = gradient_norms(initial, X[:4], Y[:4])
    monitor = mg.WeightMonitor(nets[0], "*", every=1)
    for net, callbacks in zip(nets, ([monitor], []), strict=True):
        make(net).train(2, data(), callbacks=callbacks, dataset_sink_mode=False)
    assert [record.step for record in monitor.records] == [n for n in range(1, 7) for _ in "02"]
    first, last = monitor.records[:2], monitor.records[-2:]
    assert [r.gradient for r in first] == pytest.approx([norms["0"], norms["2"]], rel=1e-4)
    ends = [weights_of(net) for net in nets]
    for record in last:
        assert record.since_start == pytest.approx(distance(ends[0], start, record.layer))
        assert record.update == record.since_last
    for name, value in ends[1].items():
        # sums in another graph may be rounded otherwise
        np.testing.assert_allclose(ends[0][name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", MODELS)
def test_after_the_run_the_step_has_its_optimizer_and_no_other_names(make):
    net = mlp()
    model = make(net)
    names = [p.name for p in model.train_network.get_parameters()]
    optimizer = model.train_network.optimizer
    monitor = mg.WeightMonitor(net, "*", every=1)
    model.train(1, data(), callbacks=[monitor], dataset_sink_mode=False)
    assert monitor.records[-1].gradient is not None
    assert model.train_network.optimizer is optimizer
    assert [p.name for p in model.train_network.get_parameters()] == names


def test_a_step_that_is_compiled_already_is_compiled_once_more_and_then_notes():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    step(*BATCH)
    monitor = mg.WeightMonitor(net, "*", every=1)
    monitor.attach(step)
    norms = gradient_norms(net, X[:4], Y[:4])
    with monitor.step(1):
        step(*BATCH)
    assert [r.gradient for r in monitor.records] == pytest.approx(list(norms.values()), rel=1e-4)


def test_stages_of_a_schedule_are_compiled_once_each_and_held_layers_are_seen():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    monitor = mg.WeightMonitor(net, "*", every=1)
    stages = mg.Schedule(step, [mg.Stage(freeze="0", epochs=1), mg.Stage(train="*")])
    ms.Model(step).train(2, data(), callbacks=[stages, monitor], dataset_sink_mode=False)
    assert step.compilations == 2
    body = [record for record in monitor.records if record.layer == "0"]
    assert [(r.since_start, r.gradient) for r in body[:3]] == [(0.0, None)] * 3
    assert all(r.since_start > 0 and r.gradient is not None and r.gradient > 0 for r in body[3:])
    head = [record for record in monitor.records if record.layer == "2"]
    assert all(r.update is not None and r.update > 0 for r in head)


def test_without_gradients_the_step_is_left_alone():
    net = mlp()
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    step(*BATCH)
    monitor = mg.WeightMonitor(net, "*", every=1, gradients=False)
    monitor.attach(step)
    with monitor.step(1):
        step(*BATCH)
    assert step.compilations == 1
    assert [record.gradient for record in monitor.records] == [None, None]
    assert monitor.records[0].since_start > 0


def test_a_record_out_of_turn_has_no_update():
    net = mlp()
    monitor = mg.WeightMonitor(net, "2", every=100)
    with monitor.step(1):
        ops.assign(net[2].bias, Tensor([3.0, 4.0]))
    assert monitor.records == []
    record = monitor.record(1)[0]
    assert (record.layer, record.update, record.ratio) == ("2", None, None)
    assert record.since_start > 0


def test_a_tied_weight_counts_once_and_patterns_choose():
    net = Tied()
    monitor = mg.WeightMonitor(net, "*.table", "middle", every=1)
    assert [record.layer for record in monitor.record(1)] == ["embedding", "middle"]


# the CPU has no kernel that assigns bfloat16
TYPES = [ms.float16, ms.float32]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_on_a_device_the_distances_are_those_of_the_host(dtype):
    values = [np.array([[3.0, 4.0]]), np.array([1.0, 2.0, 2.0])]
    weights = [Parameter(Tensor(v, dtype), name=f"w{n}") for n, v in enumerate(values)]
    both = [HostDistances(weights), DeviceDistances(weights)]
    ops.assign(weights[0], Tensor([[0.0, 0.0]], dtype))
    found = [one.measure() for one in both]
    assert found[0] == [(5.0, 5.0, None, 0.0), (0.0, 0.0, None, 3.0)]
    for one in both:
        one.keep()
    ops.assign(weights[1], Tensor([1.0, 2.0, 4.0], dtype))
    found.append(both[0].measure())
    assert found[2][0] == (5.0, 0.0, 0.0, 0.0)
    assert found[2][1] == pytest.approx((2.0, 2.0, 2.0, 21**0.5))
    for host, device in zip((found[0], found[2]), (found[1], both[1].measure()), strict=True):
        for expected, distances in zip(host, device, strict=True):
            assert tuple(distances) == pytest.approx(tuple(expected))


def test_bfloat16_is_compared_on_the_host_as_what_it_is():
    weight = Parameter(Tensor([3.0, 4.0], ms.bfloat16), name="w")
    assert HostDistances([weight]).measure() == [(0.0, 0.0, None, 5.0)]


def test_what_the_device_kept_does_not_change_with_the_weight():
    weight = Parameter(Tensor([3.0, 4.0]), name="w")
    device = DeviceDistances([weight])
    ops.assign(weight, Tensor([0.0, 0.0]))
    assert device.measure()[0].since_start == 5.0
    assert device.measure()[0] == (5.0, 0.0, None, 0.0)


def sinking(step_number, sink_size):
    """What a callback is told under a data sink, which no CPU has."""
    helper = types.SimpleNamespace(sink_size=lambda: sink_size)
    params = types.SimpleNamespace(
        dataset_sink_mode=True, cur_step_num=step_number, dataset_helper=helper
    )
    return types.SimpleNamespace(original_args=lambda: params)


def test_under_a_data_sink_it_records_the_last_step_of_a_sink_without_an_update():
    monitor = mg.WeightMonitor(mlp(), "2", every=100)
    for number in range(30, 301, 30):
        monitor.on_train_step_begin(sinking(number, 30))
        monitor.on_train_step_end(sinking(number, 30))
    assert [(record.step, record.update) for record in monitor.records] == [
        (120, None), (210, None), (300, None)
    ]  # fmt: skip


def recorded(every=1, steps=3):
    net = mlp()
    mg.freeze(net, "0")
    step = mg.TrainStep(net, momentum, nn.MSELoss())
    monitor = mg.WeightMonitor(net, "*", every=every)
    monitor.attach(step)
    for number in range(1, steps + 1):
        with monitor.step(number):
            step(*BATCH)
    return monitor


def test_json_has_every_record_and_no_nan(tmp_path):
    monitor = recorded()
    monitor.records.append(mg.LayerRecord(4, "0", float("nan"), float("inf"), 0.0, 0.0, None))
    text = monitor.to_json(tmp_path / "deep" / "monitor.json")
    assert (tmp_path / "deep" / "monitor.json").read_text(encoding="utf-8") == text + "\n"
    content = json.loads(text)
    assert (content["every"], len(content["records"])) == (1, 7)
    assert content["records"][-1] == {
        "step": 4, "layer": "0", "since_start": "nan", "since_last": "inf", "update": 0.0,
        "weight": 0.0, "gradient": None, "ratio": "nan",
    }  # fmt: skip


def test_the_picture_hides_what_is_still_and_shows_what_moves():
    monitor = recorded()
    figure = draw_records(monitor.records)
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in panels] == [
        "change since the start", "change since the last record", "update to weight", "gradient"
    ]  # fmt: skip
    for axes, name in zip(panels, ("since_start", "since_last", "ratio", "gradient"), strict=True):
        shown = axes.get_images()[0].get_array()
        assert shown.mask.tolist() == [[True] * 3, [False] * 3]
        expected = [getattr(r, name) for r in monitor.records if r.layer == "2"]
        assert shown[1].tolist() == pytest.approx(expected)


def many(layers):
    return [
        mg.LayerRecord(step, f"{'long' * 20}.{n}.cell", 0.1 * step, 0.1, 0.01, 1.0, 0.5)
        for step in range(1, 40)
        for n in range(layers)
    ]


@pytest.mark.parametrize("layers", [1, 40, 500])
def test_no_label_of_the_picture_lies_on_another(layers):
    figure = draw_records(many(layers))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [figure._suptitle, figure._supxlabel]
    for axes in figure.axes:
        low, high = sorted(axes.get_xlim())
        ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        texts += [axes.title, *(label for tick, label in ticks if low <= tick <= high)]
    texts += figure.axes[0].get_yticklabels()
    seen = [t.get_window_extent(canvas.get_renderer()) for t in texts if t.get_text()]
    assert [(a, b) for a, b in combinations(seen, 2) if a.overlaps(b)] == []


def test_a_plot_is_written_and_without_records_it_says_so(tmp_path):
    recorded().plot(tmp_path / "monitor.svg")
    assert (tmp_path / "monitor.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(mg.ArgumentError, match="the monitor has 0 records; train on, or give"):
        mg.WeightMonitor(mlp(), "*").plot(tmp_path / "none.png")


class Writer:
    """Stands for tensorboard.summary.Writer."""

    made: list[Writer]

    def __init__(self, folder):
        self.folder, self.scalars, self.flushed = folder, [], 0
        Writer.made.append(self)

    def add_scalar(self, tag, data, step):
        self.scalars.append((tag, data, step))

    def flush(self):
        self.flushed += 1


def test_scalars_are_written_for_tensorboard_where_a_folder_is_given(monkeypatch):
    Writer.made = []
    package, module = types.ModuleType("tensorboard"), types.ModuleType("tensorboard.summary")
    module.__dict__["Writer"] = Writer
    monkeypatch.setitem(sys.modules, "tensorboard", package)
    monkeypatch.setitem(sys.modules, "tensorboard.summary", module)
    monitor = mg.WeightMonitor(mlp(), "2", every=1, tensorboard="logs")
    with monitor.step(7):
        pass
    (writer,) = Writer.made
    assert (writer.folder, writer.flushed) == ("logs", 1)
    assert writer.scalars == [
        ("change since start/2", 0.0, 7), ("change since last/2", 0.0, 7),
        ("update to weight/2", 0.0, 7),
    ]  # fmt: skip


def test_a_missing_tensorboard_is_said_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "tensorboard.summary", raising=False)
    message = r"tensorboard= needs tensorboard, which is not installed; pip install 'tensorboard'"
    with pytest.raises(mg.MissingPackageError, match=message):
        mg.WeightMonitor(mlp(), "*", tensorboard="logs")


WRONG = [
    pytest.param((), {}, "patterns () are empty; give at least one, '*' for everything", id="none"),
    pytest.param(("9",), {}, "pattern '9' matched none of 4 parameters", id="no-match"),
    pytest.param(("*",), {"every": 0}, "every 0 is no number of steps; give 1 or more", id="zero"),
    pytest.param(("*",), {"every": 1.5}, "every 1.5 is no number of steps", id="half"),
    pytest.param(("*",), {"every": True}, "every True is no number of steps", id="bool"),
]


@pytest.mark.parametrize(("patterns", "options", "message"), WRONG)
def test_arguments_that_cannot_be_used_are_refused(patterns, options, message):
    with pytest.raises(mg.MsgradError, match=f"^{re.escape(message)}"):
        mg.WeightMonitor(mlp(), *patterns, **options)
