"""The gallery: of each broken program the audit says what is wrong, of each healthy one nothing.

Every expectation is exact: no verdict and no finding may be missing, and none may be too many. So
precision and recall over the gallery are 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType

import mindspore as ms
import pytest

import msgrad as mg
from msgrad.auditing._rows import GOOD, VERDICTS
from tests.auditing.gallery import cut, healthy, leaking, outputs, outside, still
from tests.conftest import MODES

NET = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "head.weight", "head.bias")


@dataclass(frozen=True)
class Broken:
    """What the audit must say of a program.

    Attributes:
        program: The program.
        rows: Of each parameter that is not as it should be the verdict and a part of the reason.
        findings: Of each fault of the whole its kind and a part of the message.
        modes: In which modes this is so.
    """

    program: Callable[[], mg.Audit]
    rows: dict[str, tuple[str, str]] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ("graph",)


def each(names: str, verdict: str, reason: str) -> dict[str, tuple[str, str]]:
    return dict.fromkeys(names.split(), (verdict, reason))


BOTH = ("graph", "pynative")
EAGER = ("pynative",)
STATISTICS = "backbone.1.moving_mean backbone.1.moving_variance"
FROZEN = "backbone.0.weight backbone.1.gamma backbone.1.beta"

SUM = "the gradient is that of their sum"
BROKEN = [
    # not the gradient of one number
    Broken(outputs.loss_and_output_in_a_train_cell, {}, {"several losses": SUM}, BOTH),
    Broken(outputs.loss_and_output_behind_one_loss, {}, {"several losses": SUM}, BOTH),
    Broken(outputs.loss_and_output_in_a_function, {}, {"several losses": SUM}, BOTH),
    Broken(outputs.loss_of_each_example, {}, {"several losses": "the loss has 8 elements"}, BOTH),
    # leaks
    Broken(
        leaking.flag_after_the_optimizer,
        each("fc1.weight fc1.bias", "leaks", "by a stale optimizer, which was made before"),
    ),
    Broken(
        leaking.flag_after_the_optimizer,
        each("fc1.weight fc1.bias", "leaks", "by weight decay 0.1"),
        modes=EAGER,
    ),
    Broken(leaking.every_flag_after_the_optimizer, each(" ".join(NET), "leaks", "stale optimizer")),
    Broken(
        leaking.every_flag_after_the_optimizer,
        each(" ".join(NET), "stale", "the optimizer holds it still"),
        {"nothing moved": "something must move"},
        EAGER,
    ),
    Broken(
        leaking.stop_under_weight_decay,
        {
            "backbone.weight": ("leaks", "stop_gradient in StoppedByHand, leaking.py:29, cuts it"),
            "backbone.bias": ("leaks", "by weight decay 0.1"),
        },
        modes=BOTH,
    ),
    Broken(
        leaking.stop_under_live_momentum,
        {
            "fc1.weight": ("leaks", "StopGradient at 'fc1' cuts it off"),
            "fc1.bias": ("leaks", "by momentum, the optimizer's state from earlier steps"),
        },
    ),
    Broken(
        leaking.norm_frozen_by_its_flags,
        each(STATISTICS, "leaks", "weights are frozen by their flags, yet it moved"),
        modes=BOTH,
    ),
    Broken(
        leaking.freeze_of_a_compiled_step,
        each(FROZEN, "leaks", "frozen by freeze('backbone'), yet it moved")
        | each(STATISTICS, "leaks", "of a step that was compiled before the freeze"),
    ),
    Broken(
        leaking.freeze_of_a_compiled_step,
        each(FROZEN, "stale", "frozen by freeze('backbone'), but the optimizer holds it still"),
        modes=EAGER,
    ),
    Broken(
        leaking.gradients_masked_under_decay,
        each("fc1.weight fc1.bias", "leaks", "hands 0 to the optimizer, yet it moved 0.01"),
        modes=BOTH,
    ),
    Broken(
        leaking.everything_made_trainable,
        each(STATISTICS, "leaks", "running statistic that the optimizer holds"),
        {"trainable statistics": "requires_grad is True for backbone.1.moving_mean"},
    ),
    # stale
    Broken(
        outside.unfreeze_after_the_optimizer,
        {"fc2.weight": ("stale", "requires_grad is True, but no optimizer holds it")},
    ),
    Broken(
        outside.layer_replaced_after_the_optimizer,
        {
            f"network._backbone.head.{key}": ("stale", "holds another Parameter of that name")
            for key in ("weight", "bias")
        },
        {"foreign parameters": "the optimizer holds head.weight, head.bias, which are not this"},
        BOTH,
    ),
    Broken(
        outside.half_of_the_network_forgotten,
        each("head.weight head.bias", "stale", "no optimizer holds it"),
    ),
    Broken(
        outside.frozen_too_late_but_stopped,
        each("backbone.weight backbone.bias", "stale", "decay or momentum would move it"),
    ),
    Broken(
        outside.optimizer_of_another_network,
        {
            f"network._backbone.{name}": ("stale", "holds another Parameter of that name")
            for name in NET
        },
        {
            "nothing moved": "no optimizer holds any of the 6 weights",
            "foreign parameters": "and 1 more, which are not this network's",
        },
    ),
    # unreached
    Broken(
        cut.forgotten_stop,
        each("backbone.weight backbone.bias", "unreached", "StoppedByHand, leaking.py:29, cuts it"),
    ),
    Broken(
        cut.stop_in_a_helper,
        each(
            "left.weight left.bias right.weight right.bias", "unreached", "cut.py:25 or cut.py:39"
        ),
        modes=BOTH,
    ),
    Broken(
        cut.layer_without_grad,
        each("0.fc.weight 0.fc.bias", "unreached", "stop_gradient in Constant at '0', cut.py:55"),
    ),
    Broken(
        cut.layers_that_do_nothing,
        each("never.weight never.bias", "unreached", "no cell of the forward pass reads it")
        | each("dropped.weight dropped.bias", "unreached", "does not lead to the loss"),
    ),
    Broken(
        cut.operators_without_a_derivative,
        each("choose.weight choose.bias", "unreached", "the operator Argmax in Hard cuts it off")
        | each("code.weight code.bias", "unreached", "the operator Sign in Hard cuts it off"),
    ),
    Broken(
        cut.backward_of_ones_own,
        each("0.weight 0.bias", "unreached", "the bprop of Clip at '1' gives nothing back"),
    ),
    Broken(
        cut.branch_never_taken,
        each("rare.weight rare.bias", "unreached", "none seen in 7 trials: a tensor-dependent"),
    ),
    Broken(
        cut.discriminator_stopped_not_frozen,
        each("generator.weight generator.bias", "unreached", "StopGradient at 'discriminator'"),
        {"nothing moved": "something must move"},
    ),
    Broken(
        cut.unused_layer_under_a_train_step,
        each("never.weight never.bias", "unreached", "reads it; TrainStep leaves it out")
        | each("dropped.weight dropped.bias", "unreached", "freeze it if that is meant"),
    ),
    # zero, dead, not finite
    Broken(cut.batch_of_zeros, {"fc1.weight": ("zero", "random inputs give one")}),
    Broken(
        cut.dead_units,
        each("fc.weight fc.bias head.weight", "dead", "zero on this batch and on random inputs"),
    ),
    Broken(cut.zeros_times_zeros, each("0.weight 0.bias 1.weight", "dead", "on random inputs")),
    Broken(
        cut.root_of_zero,
        each("fc1.weight fc1.bias fc2.weight fc2.bias", "not finite", "its gradient is not finite")
        | each("head.weight head.bias", "not finite", "it is not finite after the steps"),
        {"not finite": "the gradient is not finite from fc2.weight, fc2.bias on, toward the input"},
        BOTH,
    ),
    Broken(
        cut.broken_checkpoint,
        each(" ".join(NET), "not finite", "and so is the loss (nan)")
        | {"fc2.bias": ("not finite", "it is not finite before the first step")},
        {"not finite": "fc2.bias is not finite before the first step"},
    ),
    Broken(
        cut.rate_too_high,
        each("0.weight 0.bias 1.weight 1.bias", "not finite", "it is not finite after the steps"),
        {"not finite": "became infinite or nan in the steps; is the rate too high?"},
    ),
    # still
    Broken(
        still.rate_zero,
        each(" ".join(NET), "still", "but no bit changed: its rate is 0"),
        {"nothing moved": "every learning rate is 0"},
        BOTH,
    ),
    Broken(
        still.rate_zero_in_one_group,
        each("fc1.weight fc1.bias", "still", "but no bit changed: its rate is 0"),
    ),
    Broken(
        still.optimizer_never_called,
        each(" ".join(NET), "still", "the optimizer was not called"),
        {"nothing moved": "the optimizer was not called, its counters and state stand still"},
    ),
    Broken(
        still.function_that_forgets_the_optimizer,
        each(" ".join(NET), "still", "the optimizer was not called"),
        {"nothing moved": "the optimizer was not called"},
        BOTH,
    ),
    Broken(
        still.steps_below_half_precision,
        each("0.weight 0.bias", "still", "are below the precision of float16"),
        {"nothing moved": "something must move"},
    ),
    Broken(
        still.weight_written_back,
        {"fc2.weight": ("still", "or something writes the weight back")},
        modes=BOTH,
    ),
    # the whole
    Broken(
        still.other_order_in_a_train_cell,
        findings={"gradient order": "the gradients of first.weight, second.weight come in another"},
    ),
    Broken(
        still.other_order_in_a_function,
        findings={"gradient order": "differentiate by optimizer.parameters"},
        modes=BOTH,
    ),
    Broken(
        still.misspelt_flag,
        findings={"misplaced flag": "'require_grad' is set on the parameter 'fc1.weight'"},
    ),
    Broken(
        still.flag_of_a_cell,
        findings={"misplaced flag": "sets requires_grad on a Dense, a cell, and nothing reads it"},
        modes=BOTH,
    ),
    Broken(
        still.grad_turned_off_for_a_cell,
        findings={"misplaced flag": "fc2.weight, fc2.bias did not freeze"},
    ),
    Broken(
        still.flag_of_another_framework,
        findings={"misplaced flag": "'trainable' is set on the cell 'fc1' and nothing reads it"},
    ),
    Broken(
        still.parameter_in_a_plain_list,
        findings={"plain list": "'scales' of Scaled is a plain list that hides scale"},
        modes=BOTH,
    ),
    Broken(
        still.layers_in_a_plain_list,
        findings={"plain list": "'layers' of Listed is a plain list that hides weight, bias"},
    ),
    Broken(
        outside.weight_in_two_optimizers,
        findings={"two rules": "head.bias is in two optimizers; give it to one"},
        modes=BOTH,
    ),
    Broken(
        outside.tied_weight_frozen_by_one_name,
        findings={"two rules": "enter.weight stays, and is also"},
    ),
]
HEALTHY = [
    value
    for value in vars(healthy).values()
    if isinstance(value, FunctionType) and value.__module__ == healthy.__name__
] + [outputs.loss_and_output_told_apart, outputs.gradient_under_a_loss_scale]
# Those in which the mode makes a difference to MindSpore.
HEALTHY_IN_BOTH = {
    healthy.plain_training,
    healthy.flag_before_the_optimizer,
    healthy.freeze_with_a_train_step,
    healthy.adapting_statistics,
    healthy.groups_in_a_function,
    healthy.experimental_optimizer_in_a_function,
    healthy.model_with_a_dataset,
    healthy.accumulated_gradients,
    healthy.held_by_the_optimizer,
    outputs.loss_and_output_told_apart,
}


@pytest.mark.parametrize(
    ("broken", "mode_of_it"),
    [
        pytest.param(broken, mode, id=f"{broken.program.__name__}-{mode}")
        for broken in BROKEN
        for mode in broken.modes
    ],
)
def test_of_a_broken_program_all_that_is_wrong_is_said_and_no_more(broken: Broken, mode_of_it: str):
    ms.set_context(mode=MODES[mode_of_it])
    audit = broken.program()
    bad = {row.name: row for row in audit.rows if row.verdict not in GOOD}
    assert {n: row.verdict for n, row in bad.items()} == {n: v for n, (v, _) in broken.rows.items()}
    assert [n for n, (_, part) in broken.rows.items() if part not in bad[n].reason] == []
    faults = {finding.kind: finding.message for finding in audit.findings if finding.problem}
    assert faults.keys() == broken.findings.keys()
    assert [kind for kind, part in broken.findings.items() if part not in faults[kind]] == []
    assert not audit.ok
    assert len(audit.problems) == len(bad) + len(faults)


@pytest.mark.parametrize(
    ("program", "mode_of_it"),
    [
        pytest.param(program, mode, id=f"{program.__name__}-{mode}")
        for program in HEALTHY
        for mode in (BOTH if program in HEALTHY_IN_BOTH else ("graph",))
    ],
)
def test_of_a_healthy_program_nothing_is_said(program: Callable[[], mg.Audit], mode_of_it: str):
    ms.set_context(mode=MODES[mode_of_it])
    audit = program()
    assert audit.problems == []
    assert audit.ok
    assert any(row.verdict == "trained" for row in audit.rows)


def test_the_gallery_has_every_verdict_and_every_fault_of_the_whole():
    assert len({broken.program for broken in BROKEN}) >= 20
    verdicts = {verdict for broken in BROKEN for verdict, _ in broken.rows.values()}
    assert verdicts == set(VERDICTS) - GOOD
    assert {kind for broken in BROKEN for kind in broken.findings} == {
        "foreign parameters",
        "gradient order",
        "misplaced flag",
        "not finite",
        "nothing moved",
        "plain list",
        "several losses",
        "trainable statistics",
        "two rules",
    }
