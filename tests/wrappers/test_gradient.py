"""Stop, scale and reverse: the forward keeps its bits, the gradient is the one asked for."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.nets.wrapped_nets import (
    Around,
    Cube,
    Mixed,
    OwnBprop,
    Residual,
    UsesParts,
    X,
    bits_of,
    dense,
    gradients,
    three,
)

SPECIAL = [-0.0, 0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-7, 0.3, 65504.0]


def floats(net: nn.Cell, *inputs: Tensor) -> dict[str, np.ndarray]:
    """The same as `gradients`, as numbers."""
    weights = net.trainable_params()
    of_input, of_weights = ms.grad(net, 0, ms.ParameterTuple(weights))(*inputs)
    return {"input": of_input.asnumpy()} | {
        p.name: g.asnumpy() for p, g in zip(weights, of_weights, strict=True)
    }


# --- which gradients change


@pytest.mark.parametrize(
    ("wrapper", "upstream", "own"),
    [
        pytest.param(mg.StopGradient, 0, 0, id="stop"),
        pytest.param(lambda c: mg.StopGradient(c, at="input"), 0, 1, id="stop input"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.5), 0.5, 0.5, id="scale"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.5, "input"), 0.5, 1, id="scale input"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.0), 0, 0, id="scale zero"),
        pytest.param(mg.ReverseGradient, -1, 1, id="reverse"),
        pytest.param(lambda c: mg.ReverseGradient(c, 2, "output"), -2, -2, id="reverse output"),
    ],
)
def test_the_gradient_upstream_and_that_of_the_cell_itself(mode, wrapper, upstream, own):
    plain, net = (nn.SequentialCell([dense(2, 2) for _ in range(3)]) for _ in range(2))
    mg.wrap(net, "1", wrapper=wrapper)
    assert bits_of(net(X)) == bits_of(plain(X))
    was, now = floats(plain, X), floats(net, X)
    # Powers of two, so that scaling is exact; + 0.0 since 0·-1 is -0.
    factors = {"input": upstream, "0": upstream, "1": own, "2": 1}
    for name, gradient in was.items():
        wanted = gradient * np.float32(factors[name[0] if name != "input" else name])
        assert (now[name] + 0.0).tolist() == (wanted + 0.0).tolist(), name


def test_a_stop_on_a_branch_leaves_the_skip_path_alive(mode):
    net = Residual()
    mg.stop_gradient(net, "branch")
    found = floats(net, X)
    assert gradients(net, X) == gradients(Residual(stop=True), X)
    assert not found["branch.weight"].any()
    assert not found["branch.bias"].any()
    # By hand: only the skip path carries gradient, and it is the identity.
    ones = np.ones((2, 2), np.float32)
    np.testing.assert_allclose(found["stem.weight"], ones.T @ X.asnumpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("wrapper", "of_input", "of_weight"),
    [
        pytest.param(mg.CellWrapper, [8, 12], [4, 8], id="plain"),
        pytest.param(mg.StopGradient, [0, 0], [0, 0], id="stop"),
        pytest.param(lambda c: mg.StopGradient(c, "input"), [0, 0], [4, 8], id="stop input"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.5), [4, 6], [2, 4], id="scale"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.5, "input"), [4, 6], [4, 8], id="scale input"),
        pytest.param(mg.ReverseGradient, [-8, -12], [4, 8], id="reverse"),
    ],
)
def test_tuples_dicts_lists_none_and_keywords_pass(mode, wrapper, of_input, of_weight):
    net = UsesParts()
    mg.wrap(net, "parts", wrapper=wrapper)
    x, index = Tensor([1.0, 2.0]), Tensor([1, 2], ms.int32)
    # By hand: x·w + 2·x·w + x·w, of which the last is a list's.
    assert net(x, index).asnumpy().tolist() == [8, 24]
    found = floats(net, x, index)
    assert found["input"].tolist() == of_input
    assert found["parts.weight"].tolist() == of_weight


@pytest.mark.parametrize(
    ("wrapper", "gradient"),
    [
        pytest.param(mg.CellWrapper, 42, id="plain"),
        pytest.param(mg.StopGradient, 0, id="stop"),
        pytest.param(lambda c: mg.StopGradient(c, "input"), 0, id="stop input"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.5), 21, id="scale"),
        pytest.param(lambda c: mg.ScaleGradient(c, 0.5, "input"), 21, id="scale input"),
        pytest.param(mg.ReverseGradient, -42, id="reverse"),
    ],
)
def test_a_cell_with_its_own_bprop_keeps_it(mode, wrapper, gradient):
    net = Around(OwnBprop())
    mg.wrap(net, "inner", wrapper=wrapper)
    assert ms.grad(net)(Tensor([1.0])).asnumpy().tolist() == [gradient]
    assert net(Tensor([1.0])).asnumpy().tolist() == [2]


# --- exactness


@pytest.mark.parametrize("at", ["output", "input"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scaling_is_exact(mode, dtype, at):
    cell = mg.ScaleGradient(nn.Identity(), scale=0.1, at=at)
    values, gradient = np.array(SPECIAL).astype(dtype), np.array(SPECIAL[::-1]).astype(dtype)
    # Some threads of MindSpore's CPU kernels multiply subnormal numbers to zero, so none here.
    gradient[np.abs(gradient) < np.finfo(dtype).tiny * 100] = 0
    x, sens = Tensor(values), Tensor(gradient)
    assert bits_of(cell(x)) == bits_of(x)
    found = ops.GradOperation(sens_param=True)(cell)(x, sens)
    assert (found.dtype, bits_of(found)) == (x.dtype, bits_of(Tensor(gradient * dtype(0.1))))


@pytest.mark.parametrize(("at", "second"), [("output", 6.0), ("input", 3.0)])
def test_the_second_order_is_right(mode, at, second):
    # Of x³ at 2: 12 and 12. At the input the inner derivative is halved in each order.
    cell = mg.ScaleGradient(Cube(), scale=0.5, at=at)
    assert ms.grad(cell)(Tensor([2.0])).asnumpy().tolist() == [6.0]
    assert ms.grad(ms.grad(cell))(Tensor([2.0])).asnumpy().tolist() == [second]


@pytest.mark.parametrize(
    "wrapper", [mg.StopGradient, mg.ScaleGradient, mg.ReverseGradient], ids=lambda w: w.__name__
)
@pytest.mark.parametrize("at", ["output", "input"])
def test_integers_and_booleans_pass_unchanged(mode, wrapper, at):
    index = Tensor([1, 2], ms.int32)
    x, same, mask = wrapper(Mixed(), at=at)(Tensor([0.5, -0.0]), index)
    assert bits_of(x) == bits_of(Tensor([0.5, -0.0]))
    assert (same.dtype, same.asnumpy().tolist()) == (ms.int32, [1, 2])
    assert (mask.dtype, mask.asnumpy().tolist()) == (ms.bool_, [False, True])


@pytest.mark.parametrize("at", ["output", "input"])
def test_what_mindspore_calls_the_gradient_of_an_integer_is_left_alone(mode, at):
    grad = ops.GradOperation(get_all=True)
    x, index = Tensor([0.5, -1.0]), Tensor([1, 2], ms.int32)
    of_x, of_index = grad(mg.ScaleGradient(Mixed(), scale=0.5, at=at))(x, index)
    assert of_x.asnumpy().tolist() == [0.5, 0.5]
    assert bits_of(of_index) == bits_of(grad(Mixed())(x, index)[1])


@pytest.mark.parametrize("level", ["O2", "O3", "auto"])
def test_in_mixed_precision_the_forward_is_the_same_and_the_gradient_scaled(mode, level):
    plain, net = (ms.amp.auto_mixed_precision(three(), level) for _ in range(2))
    mg.wrap(net, nn.Dense, wrapper=lambda cell: mg.ScaleGradient(cell, scale=0.5))
    assert bits_of(net(X)) == bits_of(plain(X))
    # float16 keeps 11 bits, and the CPU drops a rounding where no operator stands between.
    np.testing.assert_allclose(
        floats(net, X)["input"], floats(plain, X)["input"] / 4, rtol=2**-10, atol=2**-14
    )


# --- a factor that changes


@pytest.mark.parametrize("recompute", [False, True], ids=["", "recompute"])
@pytest.mark.parametrize(
    ("wrapper", "sign"), [(mg.ScaleGradient, 1), (mg.ReverseGradient, -1)], ids=["scale", "reverse"]
)
def test_set_scale_acts_at_the_next_call_without_compiling(mode, wrapper, sign, recompute):
    net = nn.SequentialCell(wrapper(dense(2, 2), scale=0.5, at="output"))
    if recompute:
        net[0].recompute()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 1.0))

    def movement() -> list:
        before = net[0].bias.asnumpy().copy()
        step(X)
        return (net[0].bias.asnumpy() - before).tolist()

    assert movement() == [-sign * 2 * 0.5] * 2
    compiled = set(step.compile_cache)
    net[0].set_scale(0.25)
    assert movement() == [-sign * 2 * 0.25] * 2
    net[0].set_scale(0)
    assert movement() == [0, 0]
    assert step.compile_cache == compiled
    assert "scale=0.0" in repr(net[0]) or "scale=-0.0" in repr(net[0])


def test_a_scaled_cell_inside_a_compiled_function_in_pynative_mode():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    cell = mg.ScaleGradient(Cube(), scale=0.5)

    @ms.jit
    def forward(x: Tensor) -> Tensor:
        return cell(x)

    @ms.jit
    def gradient(x: Tensor) -> Tensor:
        return ms.grad(forward)(x)

    x = Tensor([2.0])
    assert ms.grad(forward)(x).asnumpy().tolist() == [6.0]
    assert gradient(x).asnumpy().tolist() == [6.0]
    cell.set_scale(0.25)
    assert ms.grad(forward)(x).asnumpy().tolist() == [3.0]
    assert gradient(x).asnumpy().tolist() == [3.0]


def test_a_factor_is_in_no_list_of_names_and_in_no_checkpoint():
    net = mg.ScaleGradient(dense(2, 2))
    assert [p.name for p in net.get_parameters()] == ["weight", "bias"]
    ms.save_checkpoint(net, "net.ckpt")
    assert set(ms.load_checkpoint("net.ckpt")) == {"weight", "bias"}


# --- the verbs, and what is refused


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        pytest.param(mg.stop_gradient, "StopGradient(\n  at='input'", id="stop"),
        pytest.param(
            lambda *a, **k: mg.scale_gradient(*a, scale=0.5, **k),
            "ScaleGradient(\n  scale=0.5, at='input'",
            id="scale",
        ),
        pytest.param(
            lambda *a, **k: mg.reverse_gradient(*a, scale=2, **k),
            "ReverseGradient(\n  scale=2.0, at='input'",
            id="reverse",
        ),
    ],
)
def test_the_verbs_wrap_by_pattern_and_return_the_paths(verb, kind):
    net = three()
    assert verb(net, nn.Dense, at="input") == ["0", "2"]
    assert [repr(wrapper).startswith(kind) for _, wrapper in mg.wrapped(net)] == [True, True]
    with pytest.raises(mg.ArgumentError, match=r"at 'inputs' is no place .* 'output' or 'input'"):
        verb(net, "1", at="inputs")
    assert len(mg.wrapped(net)) == 2


BAD_SCALES = [
    pytest.param(float("nan"), mg.ArgumentError, "scale nan is not finite", id="nan"),
    pytest.param(float("inf"), mg.ArgumentError, "scale inf is not finite", id="inf"),
    pytest.param(True, mg.ArgumentTypeError, "scale True is a bool; give a number", id="bool"),
    pytest.param("0.1", mg.ArgumentTypeError, "scale '0.1' is a str; give a number", id="str"),
    pytest.param(None, mg.ArgumentTypeError, "scale None is a NoneType", id="None"),
]


@pytest.mark.parametrize(("scale", "error", "message"), BAD_SCALES)
@pytest.mark.parametrize("verb", [mg.scale_gradient, mg.reverse_gradient])
def test_a_scale_that_is_no_usable_number_is_refused(verb, scale, error, message):
    net = three()
    with pytest.raises(error, match=message):
        verb(net, "0", scale=scale)
    assert mg.wrapped(net) == []
    verb(net, "0", scale=0.5)
    with pytest.raises(error, match=message):
        net[0].set_scale(scale)
    assert "scale=0.5" in repr(net[0])


def test_a_negative_scale_names_the_opposite_wrapper():
    with pytest.raises(mg.ArgumentError, match=r"-0\.5 is negative; use ReverseGradient .*=0\.5"):
        mg.ScaleGradient(nn.ReLU(), scale=-0.5)
    with pytest.raises(mg.ArgumentError, match=r"-2 is negative; use ScaleGradient with scale=2"):
        mg.ReverseGradient(nn.ReLU(), scale=-2)
    with pytest.raises(mg.ArgumentError, match="use reverse_gradient with scale=1"):
        mg.scale_gradient(three(), "0", scale=-1)
    with pytest.raises(mg.ArgumentError, match="use scale_gradient with scale=1"):
        mg.reverse_gradient(three(), "0", scale=-1)


@pytest.mark.parametrize("scale", [np.float32(0.5), np.int64(1), 0], ids=str)
def test_numbers_of_numpy_are_numbers(scale):
    assert f"scale={float(scale)}" in repr(mg.ScaleGradient(nn.ReLU(), scale=scale))


@pytest.mark.parametrize("wrapper", [mg.StopGradient, mg.ScaleGradient, mg.ReverseGradient])
def test_a_place_that_a_cell_does_not_have_is_refused(wrapper):
    with pytest.raises(mg.ArgumentError, match="at 'middle' is no place of a cell; give 'output'"):
        wrapper(nn.ReLU(), at="middle")
