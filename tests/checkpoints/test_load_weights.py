"""Weights loaded by exact names, all or none: against files that MindSpore wrote, and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from msgrad.checkpoints import _load
from tests.nets.step_nets import AccumulatingStep, Line, X, step_over, values_of

KINDS = ["ckpt", "safetensors"]


class Net(nn.Cell):
    """Three weights without layers: what is loaded is what counts."""

    def __init__(self, **values: np.ndarray | Tensor) -> None:
        super().__init__()
        values = values or {"fc__weight": ONES, "fc__bias": ONES[0], "body__weight": ONES}
        for number, (name, value) in enumerate(values.items()):
            value = value if isinstance(value, Tensor) else Tensor(value)
            setattr(self, f"w{number}", Parameter(value, name=name.replace("__", ".")))

    def construct(self, x: Tensor) -> Tensor:
        return x


ONES = np.ones((2, 3), np.float32)
NEW = np.array([[0, -0.0, 3], [np.nan, -4, np.inf]], np.float32)


def save(path: str, **values: np.ndarray | Tensor) -> str:
    """Write values under names in which two underscores stand for a dot."""
    entries = [
        {"name": name.replace("__", "."), "data": v if isinstance(v, Tensor) else Tensor(v)}
        for name, v in values.items()
    ]
    ms.save_checkpoint(entries, path, format=path.rpartition(".")[2])
    return path


def bits_of(net: nn.Cell) -> dict[str, bytes]:
    return {p.name: ops.cast(p, ms.float64).asnumpy().tobytes() for p in net.get_parameters()}


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_loaded_to_the_bit_whatever_the_order_in_it(kind: str):
    path = save(f"a.{kind}", body__weight=-NEW, fc__bias=NEW[1], fc__weight=NEW)
    net = Net()
    report = mg.load_weights(net, path)
    assert report == mg.LoadReport(("fc.weight", "fc.bias", "body.weight"))
    assert report.complete
    expected = {"fc.weight": NEW, "fc.bias": NEW[1], "body.weight": -NEW}
    assert {n: v.tobytes() for n, v in values_of(net).items()} == {
        n: v.tobytes() for n, v in expected.items()
    }


GOOD = {"fc__weight": NEW, "fc__bias": NEW[0], "body__weight": NEW}
UNFIT = [
    pytest.param(
        {"fc__wieght": NEW, "fc__bias": NEW[0], "body__weight": NEW},
        ["missing in the file: fc.weight", "not in the network: fc.wieght"],
        id="one-name-wrong",
    ),
    pytest.param(
        {"my_fc__weight": NEW, "my_fc__bias": NEW[0], "body__weight": NEW},
        [
            "missing in the file: fc.weight",
            "missing in the file: fc.bias",
            "not in the network: my_fc.weight",
            "not in the network: my_fc.bias",
        ],
        id="my_fc-for-fc",
    ),
    pytest.param(
        {f"net.{name}": value for name, value in GOOD.items()},
        [f"missing in the file: {n}" for n in ("fc.weight", "fc.bias", "body.weight")]
        + [f"not in the network: net.{n}" for n in ("fc.weight", "fc.bias", "body.weight")],
        id="a-prefix",
    ),
    pytest.param(
        {**GOOD, "fc__weight": NEW.T.copy()},
        ["other shape: fc.weight: float32 (3, 2) in the file, float32 (2, 3) in the network"],
        id="another-shape",
    ),
    pytest.param(
        {**GOOD, "fc__bias": np.array([[1, 2, 3]], np.float32)},
        ["other shape: fc.bias: float32 (1, 3) in the file, float32 (3,) in the network"],
        id="another-number-of-axes",
    ),
    pytest.param(
        {**GOOD, "fc__bias": NEW[0].astype(np.float16)},
        ["other type: fc.bias: float16 (3,) in the file, float32 (3,) in the network"],
        id="another-type",
    ),
    pytest.param({**GOOD, "extra": NEW}, ["not in the network: extra"], id="one-too-many"),
    pytest.param(
        {"fc__weight": NEW, "body__weight": NEW}, ["missing in the file: fc.bias"], id="one-too-few"
    ),
    pytest.param(
        {"fc__weight": NEW[0], "body__weight": NEW.astype(np.float64), "extra": NEW},
        [
            "missing in the file: fc.bias",
            "not in the network: extra",
            "other shape: fc.weight: float32 (3,) in the file, float32 (2, 3) in the network",
            "other type: body.weight: float64 (2, 3) in the file, float32 (2, 3) in the network",
        ],
        id="all-at-once",
    ),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("values", "differences"), UNFIT)
def test_what_does_not_fit_is_listed_at_once_and_nothing_is_loaded(
    values: dict[str, np.ndarray], differences: list[str], kind: str
):
    net = Net()
    before = bits_of(net)
    with pytest.raises(mg.CheckpointError, match=r"does not fit; nothing was loaded:\n") as caught:
        mg.load_weights(net, save(f"a.{kind}", **values))
    assert sorted(caught.value.differences) == sorted(differences)
    assert all(line in str(caught.value) for line in differences)
    assert bits_of(net) == before


def test_a_long_list_is_cut_in_the_message_and_whole_in_the_error():
    path = save("a.ckpt", **GOOD, **{f"extra{n:02}": NEW for n in range(40)})
    cut = r"extra19\nand 20 more, all in \.differences"
    with pytest.raises(mg.CheckpointError, match=cut) as caught:
        mg.load_weights(Net(), path)
    assert caught.value.differences == [f"not in the network: extra{n:02}" for n in range(40)]


def test_without_strict_what_fits_is_loaded_and_the_rest_is_reported():
    net = Net()
    path = save("a.ckpt", fc__weight=NEW, body__weight=NEW[0], extra=NEW)
    report = mg.load_weights(net, path, strict=False)
    assert report.loaded == ("fc.weight",)
    assert (report.missing, report.unexpected, report.complete) == (("fc.bias",), ("extra",), False)
    assert str(report).splitlines() == [
        "loaded 1 weight",
        "missing in the file: fc.bias",
        "not in the network: extra",
        "other shape: body.weight: float32 (3,) in the file, float32 (2, 3) in the network",
    ]
    values = values_of(net)
    assert values["fc.weight"].tobytes() == NEW.tobytes()
    assert values["fc.bias"].tolist() == [1, 1, 1]
    assert values["body.weight"].tolist() == ONES.tolist()


def test_a_file_of_which_nothing_fits_is_an_error_also_without_strict():
    path = save("a.ckpt", other=NEW)
    with pytest.raises(mg.CheckpointError, match=r"holds 1 weights, none of which fits any of the"):
        mg.load_weights(Net(), path, strict=False)


# --- state in the file


def adam(parameters: list[Parameter]) -> nn.Cell:
    return nn.AdamWeightDecay(parameters, 0.1)


def holding(parameters: list[Parameter]) -> nn.Cell:
    return mg.HoldOptimizer(nn.Momentum(parameters, 0.1, 0.9))


def with_rates(parameters: list[Parameter]) -> nn.Cell:
    groups = [{"params": [p], "lr": 0.1 * (n + 1)} for n, p in enumerate(parameters)]
    return nn.Adam(groups, 0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", [adam, holding, with_rates])
def test_optimizer_state_in_a_checkpoint_is_told_apart_and_not_an_error(
    optimizer: Callable[..., nn.Cell], kind: str
):
    net = Line()
    ms.save_checkpoint(nn.TrainOneStepCell(net, optimizer(net.trainable_params())), f"a.{kind}",
                       format=kind)  # fmt: skip
    saved = ms.load_checkpoint(f"a.{kind}", format=kind)
    again = Line()
    names = set(values_of(again))
    assert set(saved) > names
    ops.assign(again.a.weight, Tensor([9.0, 9.0]))
    report = mg.load_weights(again, f"a.{kind}")
    assert (set(report.loaded), set(report.state)) == (names, set(saved) - names)
    assert {n: v.tolist() for n, v in values_of(again).items()} == {
        n: saved[n].asnumpy().tolist() for n in names
    }


def test_masks_of_slots_and_joined_slots_are_state():
    state = {"hold_mask__fc__weight": NEW, "hold_mask__moments__fc__weight": NEW,
             "eta_fc__weight": NEW, "hold_flag__fc__weight": NEW}  # fmt: skip
    report = mg.load_weights(Net(), save("a.ckpt", **GOOD, **state))
    assert set(report.state) == {name.replace("__", ".") for name in state}
    assert report.loaded == ("fc.weight", "fc.bias", "body.weight")


def test_a_weight_that_is_named_like_state_is_a_weight():
    net = Net(fc__weight=ONES, momentum=ONES, moments__fc__weight=ONES)
    path = save("a.ckpt", fc__weight=NEW, momentum=NEW, moments__fc__weight=NEW)
    assert mg.load_weights(net, path).loaded == ("fc.weight", "momentum", "moments.fc.weight")
    assert values_of(net)["momentum"].tobytes() == NEW.tobytes()


def test_a_layer_that_is_named_like_a_slot_does_not_hide_that_weights_are_missing():
    # `linear` is a slot of FTRL, and `linear.fc.weight` a weight of another network
    net = Net(fc__weight=ONES)
    with pytest.raises(mg.CheckpointError, match=r"missing in the file: fc\.weight") as caught:
        mg.load_weights(net, save("a.ckpt", linear__fc__weight=NEW))
    assert caught.value.differences == [
        "missing in the file: fc.weight",
        "not in the network: linear.fc.weight",
    ]


def test_the_weights_of_a_saved_run_are_taken_and_all_else_in_it_is_state():
    net = Line()
    mg.freeze(net, "b")
    step = step_over(net, adam, train_cell=AccumulatingStep)
    step.save("run.msgrad")
    saved = set(ms.load_checkpoint(str(Path("run.msgrad").rename("run.ckpt")))) - {"msgrad.meta"}
    again = Line()
    ops.assign(again.b.weight, Tensor([9.0, 9.0]))
    report = mg.load_weights(again, "run.ckpt")
    assert report.loaded == ("a.weight", "b.weight", "c.weight")
    assert set(report.state) == saved - set(report.loaded)
    assert {"calls", "sum.a.weight", "adam_m.c.weight"} <= set(report.state)
    assert again.b.weight.asnumpy().tolist() == [3.0, 4.0]
    # flags and freezes are those of the network, not of the file
    assert again.b.weight.requires_grad


# --- after training has begun


SEVENS = np.array([7, 7], np.float32)


def sgd(parameters: list[Parameter]) -> nn.Cell:
    return nn.SGD(parameters, 0.5)


def plain(net: nn.Cell) -> Callable[..., object]:
    return nn.TrainOneStepCell(net, sgd(net.trainable_params()))


def functional(net: nn.Cell) -> Callable[..., object]:
    optimizer = sgd(net.trainable_params())
    gradient = ms.value_and_grad(net, None, optimizer.parameters)

    def train(x: Tensor) -> None:
        optimizer(gradient(x)[1])

    return train


def a_step(net: nn.Cell) -> Callable[..., object]:
    return step_over(net, sgd)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("make", [a_step, plain, functional])
def test_after_training_has_begun_the_optimizer_keeps_the_weights_and_a_freeze_its_claim(
    make: Callable[..., Callable[..., object]],
):
    net = Line()
    claim = mg.freeze(net, "b")
    train = make(net)
    train(X)
    path = save("a.ckpt", a__weight=SEVENS, b__weight=SEVENS + 1, c__weight=SEVENS + 2)
    mg.load_weights(net, path)
    assert [p.asnumpy().tolist() for p in net.get_parameters()] == [[7, 7], [8, 8], [9, 9]]
    train(X)
    # the gradients of `Line`: x for `a`, 1000x for `c`
    assert net.a.weight.asnumpy().tolist() == [7 - 0.5, 7 - 1.0]
    assert net.c.weight.asnumpy().tolist() == [9 - 500.0, 9 - 1000.0]
    assert (net.b.weight.asnumpy().tolist(), mg.is_frozen(net, "b")) == ([8, 8], True)
    claim.undo()
    assert not mg.is_frozen(net, "b")


def test_a_held_weight_gets_its_value_and_stays_held():
    net = Line()
    optimizer = mg.HoldOptimizer(sgd(net.trainable_params()))
    train = nn.TrainOneStepCell(net, optimizer)
    optimizer.hold("a")
    train(X)
    path = save("a.ckpt", a__weight=SEVENS, b__weight=SEVENS + 1, c__weight=SEVENS + 2)
    mg.load_weights(net, path)
    train(X)
    assert (net.a.weight.asnumpy().tolist(), optimizer.held) == ([7, 7], ["a.weight"])
    assert net.b.weight.asnumpy().tolist() == [8 - 1.0, 8 - 2.0]


# --- files that cannot be used


def cut(path: Path, length: int) -> None:
    data = path.read_bytes()
    path.unlink()  # MindSpore makes its files read-only
    path.write_bytes(data[:length])


SPOILT = [
    pytest.param("ckpt", lambda p: cut(p, 0), id="empty"),
    pytest.param("ckpt", lambda p: cut(p, p.stat().st_size // 2), id="half"),
    pytest.param("ckpt", lambda p: cut(p, p.stat().st_size - 1), id="a-byte-short"),
    pytest.param("safetensors", lambda p: cut(p, 0), id="safetensors-empty"),
    pytest.param("safetensors", lambda p: cut(p, p.stat().st_size - 1), id="safetensors-short"),
    pytest.param("safetensors", lambda p: cut(p, 20), id="safetensors-header-cut"),
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("kind", "spoil"), SPOILT)
def test_a_damaged_file_is_refused_and_nothing_is_changed(
    kind: str, spoil: Callable[[Path], None], strict: bool
):
    net = Net()
    before = bits_of(net)
    path = Path(save(f"a.{kind}", **GOOD))
    spoil(path)
    with pytest.raises(mg.CheckpointError, match=r"damaged or no checkpoint; give a whole file"):
        mg.load_weights(net, path, strict=strict)
    assert bits_of(net) == before


FOREIGN = [
    pytest.param(b"epoch, loss\n1, 0.5\n" * 9, id="text"),
    pytest.param(b'{"a": 1}', id="json"),
    pytest.param(b"PK\x03\x04" + bytes(range(250)), id="zip-of-torch"),
    pytest.param(bytes(range(256)) * 4, id="noise"),
    pytest.param(b"\x00" * 64, id="zeros"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", FOREIGN)
def test_a_foreign_file_is_refused_and_nothing_is_changed(content: bytes, kind: str):
    net = Net()
    before = bits_of(net)
    Path(f"a.{kind}").write_bytes(content)
    with pytest.raises(mg.CheckpointError, match=r"damaged or no checkpoint; give a whole file"):
        mg.load_weights(net, f"a.{kind}")
    assert bits_of(net) == before


@pytest.mark.parametrize("path", ["nowhere.ckpt", "."])
def test_a_path_that_is_no_file_is_refused(path: str):
    with pytest.raises(mg.CheckpointError, match=r"is no file; give a \.ckpt or \.safetensors"):
        mg.load_weights(Net(), path)


def test_a_checkpoint_cut_exactly_between_two_values_lacks_weights():
    short = Path(save("short.ckpt", fc__weight=NEW, fc__bias=NEW[0]))
    path = Path(save("a.ckpt", **GOOD))
    cut(path, short.stat().st_size)
    assert set(ms.load_checkpoint("a.ckpt")) == {"fc.weight", "fc.bias"}
    with pytest.raises(mg.CheckpointError, match=r"missing in the file: body\.weight") as caught:
        mg.load_weights(Net(), path)
    assert caught.value.differences == ["missing in the file: body.weight"]


def test_a_run_that_was_cut_is_refused():
    step_over(Line(), adam).save("run.ckpt")
    cut(Path("run.ckpt"), Path("run.ckpt").stat().st_size - 3)
    with pytest.raises(mg.CheckpointError, match=r"damaged or no checkpoint"):
        mg.load_weights(Line(), "run.ckpt")


@pytest.mark.parametrize("text", [b"\xff\xfe", b'{"format": 1}', b"[1]", b""])
def test_a_run_whose_description_is_damaged_is_refused(text: bytes):
    description = Tensor(np.frombuffer(text + b" ", np.uint8).copy())
    path = save("a.ckpt", **GOOD, msgrad__meta=description)
    with pytest.raises(mg.CheckpointError, match=r"damaged: its description cannot be read"):
        mg.load_weights(Net(), path)


def test_whatever_interrupts_the_writing_none_is_loaded(monkeypatch: pytest.MonkeyPatch):
    net = Net()
    before = bits_of(net)
    write, calls = _load.write, []

    def interrupted(parameter: Parameter, value: object) -> None:
        calls.append(parameter.name)
        if len(calls) == 3:
            raise KeyboardInterrupt("amid a load")
        write(parameter, value)

    monkeypatch.setattr(_load, "write", interrupted)
    with pytest.raises(KeyboardInterrupt, match="amid a load"):
        mg.load_weights(net, save("a.ckpt", **GOOD))
    assert calls[:3] == ["fc.weight", "fc.bias", "body.weight"]
    assert bits_of(net) == before


# --- weights of every kind


TYPES = [ms.float16, ms.bfloat16, ms.float64, ms.int8, ms.uint8, ms.int32, ms.int64, ms.bool_]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_every_type_and_numbers_without_axes_are_loaded(kind: str):
    ones = {f"t{n}": Tensor(np.ones(2), dtype) for n, dtype in enumerate(TYPES)}
    scalars = {f"s{n}": Tensor(np.ones(()), dtype) for n, dtype in enumerate(TYPES)}
    net = Net(**ones, **scalars)
    new = {n: Tensor(np.array([1, 0]), v.dtype) for n, v in ones.items()}
    new |= {n: Tensor(np.zeros(()), v.dtype) for n, v in scalars.items()}
    mg.load_weights(net, save(f"a.{kind}", **new))
    for parameter in net.get_parameters():
        value = ops.cast(parameter, ms.float64).asnumpy()
        assert (value.tolist(), parameter.dtype, parameter.shape) == (
            [1, 0] if parameter.name[0] == "t" else 0, new[parameter.name].dtype, value.shape
        )  # fmt: skip


def test_a_number_without_axes_is_another_shape_than_a_list_of_one():
    with pytest.raises(mg.CheckpointError, match=r"float32 \(1,\) in the file, float32 \(\) in"):
        mg.load_weights(Net(s=np.float32(1)), save("a.ckpt", s=np.array([1], np.float32)))


def test_a_weight_without_elements_is_in_no_file_and_not_missing():
    net = Net(fc__weight=ONES, none=np.zeros((0, 3), np.float32))
    ms.save_checkpoint(net, "a.ckpt")
    assert set(ms.load_checkpoint("a.ckpt")) == {"fc.weight"}
    assert mg.load_weights(net, "a.ckpt").loaded == ("fc.weight",)


def test_a_tied_weight_is_one_weight():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    net[1].weight = net[0].weight
    ms.save_checkpoint(net, "a.ckpt")
    expected = ms.load_checkpoint("a.ckpt")["0.weight"].asnumpy()
    ops.assign(net[0].weight, Tensor(np.zeros((2, 2), np.float32)))
    assert mg.load_weights(net, "a.ckpt").loaded == ("0.weight", "0.bias", "1.bias")
    assert net[1].weight.asnumpy().tobytes() == expected.tobytes()


def test_wrapped_and_plain_networks_load_each_others_checkpoints():
    net, again = (nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2)) for _ in range(2))
    ms.save_checkpoint(net, "plain.ckpt")
    mg.stop_gradient(again, "0")
    mg.scale_gradient(again, "1", scale=0.1)
    names = ("0.weight", "0.bias", "1.weight", "1.bias")
    assert mg.load_weights(again, "plain.ckpt").loaded == names
    assert bits_of(again) == bits_of(net)
    ms.save_checkpoint(again, "wrapped.ckpt")
    ops.assign(net[0].bias, Tensor([5.0, 5.0]))
    assert mg.load_weights(net, "wrapped.ckpt").loaded == names
    assert bits_of(again) == bits_of(net)


NO_NETWORKS = [
    pytest.param(lambda: step_over(Line()), "net TrainStep holds the optimizer Momentum; give the",
                 id="TrainStep"),
    pytest.param(lambda: plain(Line()), "net TrainOneStepCell holds the optimizer SGD; give the",
                 id="TrainOneStepCell"),
    pytest.param(lambda: {"a": 1}, "is no Cell; give the network", id="dict"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), NO_NETWORKS)
def test_what_is_no_network_alone_is_refused(make: Callable[[], object], message: str):
    with pytest.raises(mg.ArgumentTypeError, match=message):
        mg.load_weights(make(), "a.ckpt")  # pyright: ignore[reportArgumentType]
    with pytest.raises(mg.ArgumentTypeError, match=message):
        mg.save_trainable(make(), "a.ckpt")  # pyright: ignore[reportArgumentType]


def test_names_that_begin_otherwise_in_the_file_are_renamed():
    other = nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 1))
    entries = [{"name": f"model.{p.name}", "data": p} for p in other.get_parameters()]
    ms.save_checkpoint(entries, "prefixed.ckpt")
    net = nn.SequentialCell(nn.SequentialCell(nn.Dense(2, 3), nn.Dense(3, 1)), nn.Dense(1, 1))
    rename = {"model.": "0.", "model.1.": "0.1."}
    report = mg.load_weights(net, "prefixed.ckpt", strict=False, rename=rename)
    assert report.loaded == ("0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias")
    for mine, right in zip(net[0].get_parameters(), other.get_parameters(), strict=True):
        assert mine.asnumpy().tobytes() == right.asnumpy().tobytes()
    with pytest.raises(mg.CheckpointError, match="gives two values of the file one name"):
        mg.load_weights(net, "prefixed.ckpt", rename={"model.0.": "0.", "model.1.": "0."})
