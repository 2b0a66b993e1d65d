"""What may have moved is saved with the fingerprint of its base, and loads onto that base only."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg
from msgrad.checkpoints import _files, _save, _side_file
from tests.nets.step_nets import Line, X, step_over, values_of

KINDS = ["ckpt", "safetensors"]
SIDE = "head.ckpt.msgrad.json"
HEAD = ("2.weight", "2.bias", "3.moving_mean", "3.moving_variance", "3.gamma", "3.beta")
FROZEN = ("0.weight", "0.bias", "1.moving_mean", "1.moving_variance", "1.gamma", "1.beta")


def network(seed: int = 7) -> nn.SequentialCell:
    """A layer and a norm to be frozen as `{0..1}`, and a layer and a norm to be trained."""
    net = nn.SequentialCell(nn.Dense(2, 3), nn.BatchNorm1d(3), nn.Dense(3, 2), nn.BatchNorm1d(2))
    rng = np.random.default_rng(seed)
    for p in net.get_parameters():
        p.set_data(Tensor(rng.uniform(-0.7, 0.7, p.shape).astype(np.float32)))
    return net


def trained() -> nn.SequentialCell:
    """The same base, with another head."""
    net = network()
    mg.freeze(net, "{0..1}")
    for p in net.get_parameters():
        if p.name in HEAD:
            ops.assign(p, p + 1.0)
    return net


def bits_of(net: nn.Cell) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in values_of(net).items()}


def change(path: str | Path, **changes: object) -> None:
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    Path(path).write_text(json.dumps({**content, **changes}), encoding="utf-8")


# --- what is saved


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", KINDS)
def test_the_trainable_and_the_adapting_is_saved_and_makes_the_base_whole_again(kind: str):
    net = trained()
    path = f"deep/er/head.{kind}"
    assert mg.save_trainable(net, path) == [n for n in values_of(net) if n in HEAD]
    saved = ms.load_checkpoint(path, format=kind)
    assert set(saved) == set(HEAD)
    assert {n: v.asnumpy().tobytes() for n, v in saved.items()} == {
        n: bits_of(net)[n] for n in HEAD
    }
    base = network()
    assert bits_of(base) != bits_of(net)
    report = mg.load_weights(base, path)
    assert (set(report.loaded), report.complete) == (set(HEAD), True)
    assert bits_of(base) == bits_of(net)
    assert not mg.is_frozen(base, "0")


def test_the_side_file_says_what_is_in_it_and_on_which_base_it_goes():
    net = Line()
    mg.freeze(net, "{a,c}")

    class Plan:
        def to_dict(self) -> dict[str, object]:
            return {"plan": [{"freeze": ("a", "c")}]}

    mg.save_trainable(net, "head.ckpt", plan=Plan())

    def digest(*names: str) -> str:
        head = b"".join(
            b"%d|%s|float32|(2,)|8" % (len(name) + 15, name.encode())
            + values_of(net)[name].tobytes()
            for name in names
        )
        return hashlib.sha256(head).hexdigest()

    assert json.loads(Path(SIDE).read_text(encoding="utf-8")) == {
        "format": 1,
        "weights": {"b.weight": "float32 (2,)"},
        "fingerprint": digest("b.weight"),
        "base": {
            "fingerprint": digest("a.weight", "c.weight"),
            "weights": {n: digest(n)[:16] for n in ("a.weight", "c.weight")},
        },
        "plan": {"plan": [{"freeze": ["a", "c"]}]},
    }


def train_then_freeze(net: Line) -> None:
    step = step_over(net, lambda p: nn.SGD(p, 0.5))
    mg.freeze(net, "{b,c}")
    step(X)
    mg.freeze(net, "a")
    mg.unfreeze(net, "b")


def train_then_resume(net: Line) -> None:
    other = Line()
    train_then_freeze(other)
    step_over(other, lambda p: nn.SGD(p, 0.5)).save("run.msgrad")
    step_over(net, lambda p: nn.SGD(p, 0.5)).load("run.msgrad")
    assert mg.frozen_state(net, "a") == "frozen"


def update_then_freeze(net: Line) -> None:
    mg.update_weights(net, {"a": mg.rules.multiply(0.5)}, compiled=False)
    mg.freeze(net, "{a,c}")


def update_while_frozen(net: Line) -> None:
    mg.freeze(net, "{a,c}")
    mg.update_weights(net, {"a": mg.rules.multiply(0.5)}, force=True, compiled=False)


@pytest.mark.parametrize(
    "move", [train_then_freeze, train_then_resume, update_then_freeze, update_while_frozen]
)
def test_what_moved_before_it_was_frozen_is_saved_too(move: Callable[[Line], None]):
    net = Line()
    move(net)
    assert mg.save_trainable(net, "part.ckpt") == ["a.weight", "b.weight"]
    base = Line()
    assert mg.load_weights(base, "part.ckpt").loaded == ("a.weight", "b.weight")
    assert bits_of(base) == bits_of(net)
    assert bits_of(base)["a.weight"] != bits_of(Line())["a.weight"]


def test_statistics_that_adapted_before_they_were_held_are_saved():
    net = network()
    step = step_over(net, lambda p: nn.SGD(p, 0.5), loss_fn=nn.MSELoss())
    ones = Tensor(np.ones((2, 2), np.float32))
    mg.freeze(net, "{0..1}", "2")
    step(Tensor(np.array([[1, 2], [3, 5]], np.float32)), ones)
    mg.freeze(net, "3")
    mg.unfreeze(net, "2")
    names = mg.save_trainable(net, "part.ckpt")
    assert set(names) == set(HEAD)
    base = network()
    mg.load_weights(base, "part.ckpt")
    assert bits_of(base) == bits_of(net)
    assert bits_of(base)["3.moving_mean"] != bits_of(network())["3.moving_mean"]


def test_a_weight_without_a_gradient_by_the_models_own_flag_belongs_to_the_base():
    net = Line()
    net.a.weight.requires_grad = False
    assert mg.save_trainable(net, "part.ckpt") == ["b.weight", "c.weight"]


def test_a_tied_and_a_wrapped_weight_is_saved_once_under_its_name():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    net[1].weight = net[0].weight
    mg.freeze(net, "0.bias")
    plain = copy.deepcopy(net)
    mg.stop_gradient(net, "1")
    assert mg.save_trainable(net, "part.ckpt") == ["0.weight", "1.bias"]
    assert mg.load_weights(plain, "part.ckpt").complete
    mg.save_trainable(plain, "part.ckpt")
    assert mg.load_weights(net, "part.ckpt").complete


class Types(nn.Cell):
    """Weights of several types, one of them a number without axes and one without elements."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Parameter(Tensor([1.0], ms.bfloat16), name="base", requires_grad=False)
        self.half = Parameter(Tensor([1.0, -0.0], ms.float16), name="half")
        self.brain = Parameter(Tensor([1.0, 2.0], ms.bfloat16), name="brain")
        self.number = Parameter(Tensor(1.0, ms.float32), name="number")
        self.none = Parameter(Tensor(np.zeros((0, 2), np.float32)), name="none")


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("kind", KINDS)
def test_types_and_shapes_come_back_as_they_were(kind: str):
    net, again = Types(), Types()
    net.number.set_data(Tensor(3.0, ms.float32))
    net.half.set_data(Tensor([-0.0, 5.0], ms.float16))
    net.brain.set_data(Tensor([4.0, 8.0], ms.bfloat16))
    assert mg.save_trainable(net, f"t.{kind}") == ["half", "brain", "number"]
    assert mg.load_weights(again, f"t.{kind}").loaded == ("half", "brain", "number")
    assert mg.fingerprint(again) == mg.fingerprint(net)
    assert (again.number.shape, float(again.number.asnumpy())) == ((), 3.0)
    assert ops.cast(again.brain, ms.float32).asnumpy().tolist() == [4.0, 8.0]


# --- the base


def test_another_base_is_refused_and_what_differs_is_named():
    mg.save_trainable(trained(), "head.ckpt")
    other = network()
    ops.assign(other[0].bias, Tensor([0.0, 0.0, 0.0]))
    ops.assign(other[1].moving_mean, Tensor([5.0, 5.0, 5.0]))
    before = bits_of(other)
    with pytest.raises(mg.CheckpointError, match=r"load the base that it was trained on") as caught:
        mg.load_weights(other, "head.ckpt")
    assert caught.value.differences == ["other base: 0.bias", "other base: 1.moving_mean"]
    assert bits_of(other) == before
    report = mg.load_weights(other, "head.ckpt", strict=False)
    assert (set(report.loaded), report.complete) == (set(HEAD), False)
    assert report.other_base == ("0.bias", "1.moving_mean")
    expected = {**before, **{n: bits_of(trained())[n] for n in HEAD}}
    assert bits_of(other) == expected


def test_a_network_with_layers_more_or_less_than_the_base_is_refused():
    mg.save_trainable(trained(), "head.ckpt")
    more = nn.SequentialCell(*list(network()), nn.Dense(2, 2))
    names = [p.name for p in more[4].get_parameters()]
    with pytest.raises(mg.CheckpointError, match="missing in the file: 4") as caught:
        mg.load_weights(more, "head.ckpt")
    assert caught.value.differences == [f"missing in the file: {name}" for name in names]
    less = nn.SequentialCell(*list(network())[:3])
    with pytest.raises(mg.CheckpointError, match="not in the network: 3") as caught:
        mg.load_weights(less, "head.ckpt")
    lost = [
        f"not in the network: 3.{n}" for n in ("moving_mean", "moving_variance", "gamma", "beta")
    ]
    assert sorted(caught.value.differences) == sorted(lost)
    gone = nn.SequentialCell(nn.Dense(2, 3), *list(network())[1:])
    del gone[1]
    with pytest.raises(mg.CheckpointError, match=r"other base: 1\.gamma"):
        mg.load_weights(gone, "head.ckpt")


def test_what_is_frozen_on_the_loading_side_gets_its_value_and_stays_frozen():
    mg.save_trainable(trained(), "head.ckpt")
    base = network()
    mg.freeze(base, "*")
    mg.load_weights(base, "head.ckpt")
    assert bits_of(base) == bits_of(trained())
    assert mg.is_frozen(base, "*")


# --- two files that have to belong together


def dies(*_: object) -> None:
    raise KeyboardInterrupt("amid a save")


def dies_half_way(entries: object, name: str, **_: object) -> None:
    Path(name).write_bytes(b"half")
    raise KeyboardInterrupt("amid a save")


def save_and_be_killed(net: nn.Cell, owner: object, method: str, how: Callable[..., None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, how)
        with pytest.raises(KeyboardInterrupt, match="amid a save"):
            mg.save_trainable(net, "head.ckpt")


@pytest.mark.parametrize("strict", [True, False])
def test_a_save_killed_between_its_files_leaves_a_pair_that_is_refused(strict: bool):
    mg.save_trainable(network(), "head.ckpt")
    save_and_be_killed(trained(), _side_file.SideFile, "write", dies)
    base = network()
    with pytest.raises(mg.CheckpointError, match=r"holds other values than 'head\.ckpt\.msgrad"):
        mg.load_weights(base, "head.ckpt", strict=strict)
    assert bits_of(base) == bits_of(network())
    mg.save_trainable(trained(), "head.ckpt")
    assert mg.load_weights(base, "head.ckpt").complete


def test_the_first_save_killed_between_its_files_lacks_its_side_file_and_is_refused():
    save_and_be_killed(trained(), _side_file.SideFile, "write", dies)
    with pytest.raises(mg.CheckpointError, match=r"if save_trainable wrote it, 'head\.ckpt\.msg"):
        mg.load_weights(network(), "head.ckpt")
    assert set(mg.load_weights(network(), "head.ckpt", strict=False).loaded) == set(HEAD)


def test_a_save_killed_while_it_writes_leaves_the_pair_before_it():
    net = trained()
    mg.save_trainable(net, "head.ckpt")
    expected = bits_of(net)
    ops.assign(net[2].bias, Tensor([9.0, 9.0]))
    save_and_be_killed(net, _files.ms, "save_checkpoint", dies_half_way)
    assert sorted(p.name for p in Path().iterdir() if "head" in p.name) == ["head.ckpt", SIDE]
    base = network()
    assert mg.load_weights(base, "head.ckpt").complete
    assert bits_of(base) == expected


def of_another_save(net: nn.Cell) -> None:
    ops.assign(net[2].bias, Tensor([9.0, 9.0]))
    mg.save_trainable(net, "other.ckpt")
    Path("other.ckpt.msgrad.json").replace(SIDE)


def overwritten_by_a_checkpoint(net: nn.Cell) -> None:
    ms.save_checkpoint(net, "head.ckpt")


def a_bit_of_the_weights(net: nn.Cell) -> None:
    data = bytearray(Path("head.ckpt").read_bytes())
    at = bytes(data).index(net[2].bias.asnumpy().tobytes())
    data[at] ^= 1
    Path("head.ckpt").unlink()
    Path("head.ckpt").write_bytes(bytes(data))


def a_name_less(net: nn.Cell) -> None:
    weights = json.loads(Path(SIDE).read_text(encoding="utf-8"))["weights"]
    weights.pop("2.bias")
    change(SIDE, weights=weights)


@pytest.mark.parametrize(
    "spoil", [of_another_save, overwritten_by_a_checkpoint, a_bit_of_the_weights, a_name_less]
)
def test_a_side_file_that_does_not_belong_is_refused(spoil: Callable[[nn.Cell], None]):
    net = trained()
    mg.save_trainable(net, "head.ckpt")
    spoil(net)
    base = network()
    with pytest.raises(mg.CheckpointError, match=r"holds other values than .*; save both again"):
        mg.load_weights(base, "head.ckpt")
    assert bits_of(base) == bits_of(network())


DAMAGED = ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "note": "of somebody else"}',
           '{"weights": 1, "fingerprint": "", "base": {"fingerprint": "", "weights": {}}}',
           '{"weights": {}, "fingerprint": "", "base": {"weights": {}}}']  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_or_foreign_side_file_is_refused(text: str):
    mg.save_trainable(trained(), "head.ckpt")
    Path(SIDE).write_text(text, encoding="utf-8")
    base = network()
    with pytest.raises(mg.CheckpointError, match=r"json' is damaged or was not written by save_tr"):
        mg.load_weights(base, "head.ckpt")
    assert bits_of(base) == bits_of(network())


def test_a_side_file_of_a_later_format_is_refused():
    mg.save_trainable(trained(), "head.ckpt")
    change(SIDE, format=2)
    with pytest.raises(mg.CheckpointError, match=r"written by a later msgrad; install that one"):
        mg.load_weights(network(), "head.ckpt")


# --- several ranks


def test_a_rank_that_is_not_the_first_writes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_save, "saves_here", lambda parameters: False)
    assert set(mg.save_trainable(trained(), "head.ckpt")) == set(HEAD)
    assert not list(Path().iterdir())


# --- what cannot be saved


@pytest.mark.parametrize("path", ["head", "head.npz", "head.msgrad"])
def test_an_ending_that_mindspore_could_not_load_is_refused(path: str):
    with pytest.raises(mg.ArgumentError, match=r"let it end in '\.ckpt' or '\.safetensors'"):
        mg.save_trainable(network(), path)
    assert not list(Path().iterdir())


def test_a_network_of_which_nothing_may_have_moved_is_refused():
    net = network()
    mg.freeze(net, "*")
    with pytest.raises(mg.ArgumentError, match=r"12 parameters, and nothing of it may have moved"):
        mg.save_trainable(net, "head.ckpt")
    assert not Path("head.ckpt").exists()


def test_a_complex_weight_is_refused_since_it_could_not_be_loaded_again():
    net = nn.Dense(2, 2)
    net.phase_of = Parameter(Tensor(np.ones(2, np.complex64)), name="phase_of")
    with pytest.raises(mg.ArgumentError, match=r"weight 'phase_of' is complex"):
        mg.save_trainable(net, "head.ckpt")


class NoJson:
    def to_dict(self) -> dict[str, object]:
        return {"plan": {1, 2}}


PLANS = [
    pytest.param({"plan": []}, mg.ArgumentTypeError, r"plan dict has no to_dict\(\)", id="a-dict"),
    pytest.param(NoJson(), mg.ArgumentError, "plan NoJson cannot be written as JSON", id="a-set"),
]


@pytest.mark.parametrize(("plan", "error", "message"), PLANS)
def test_a_plan_that_cannot_be_written_is_refused_before_anything_is(
    plan: object, error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        mg.save_trainable(network(), "head.ckpt", plan=plan)
    assert not list(Path().iterdir())


def test_a_folder_that_cannot_be_made_is_an_error_of_the_file():
    Path("taken").write_text("a file", encoding="utf-8")
    with pytest.raises(mg.CheckpointError, match=r"path 'taken/head\.ckpt' cannot be written"):
        mg.save_trainable(network(), "taken/head.ckpt")
