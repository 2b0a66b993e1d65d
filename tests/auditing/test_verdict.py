"""The verdict on one parameter, from facts alone."""

from __future__ import annotations

import pytest

from msgrad.auditing._verdict import Facts, verdict_on

MOVED = "it moved 0.1"
FROZEN = "freeze('fc')"

CASES = [
    # meant to move
    pytest.param(Facts(gradient=1.0, moved=MOVED, lr=0.1), ("", "trained", MOVED), id="trained"),
    pytest.param(
        Facts(gradient=0.0, later=0.5, moved=MOVED),
        ("", "trained", MOVED),
        id="trained-from-the-second-step-on",
    ),
    pytest.param(
        Facts(path="unknown", moved=MOVED), ("", "trained", MOVED), id="trained-gradient-unknown"
    ),
    pytest.param(
        Facts(gradient=1.0, lr=0.0),
        ("", "still", "the gradient is 1, but no bit changed: its rate is 0"),
        id="still-rate-0",
    ),
    pytest.param(
        Facts(gradient=1.0, lr=0.0, called=False),
        ("", "still", "the optimizer was not called"),
        id="still-not-called",
    ),
    pytest.param(
        Facts(gradient=1.0, lr=0.1),
        ("", "still", "does not pass its gradient on, or something writes the weight back"),
        id="still-for-no-known-reason",
    ),
    pytest.param(
        Facts(gradient=1.0, received=0.0),
        ("", "still", "the gradient is 1, but the train cell hands 0 to the optimizer"),
        id="still-withheld",
    ),
    pytest.param(
        Facts(gradient=1.0, received=0.0, moved=MOVED, decay=0.1),
        ("", "leaks", "hands 0 to the optimizer, yet it moved 0.1 by weight decay 0.1"),
        id="leaks-withheld",
    ),
    pytest.param(
        Facts(gradient=1.0, latched=True, moved=MOVED, decay=0.1),
        ("", "still", "a zero gradient, since its flag was off when a step first ran; it moved"),
        id="still-latched",
    ),
    pytest.param(
        Facts(path="unreached", gradient=0.0, cut="StopGradient at 'a' cuts it off"),
        ("", "unreached", "no gradient reaches it: StopGradient at 'a' cuts it off"),
        id="unreached",
    ),
    pytest.param(
        Facts(path="unseen", gradient=0.0),
        ("", "unreached", "whether a gradient reaches it is not known, none seen in 7 trials"),
        id="unseen",
    ),
    pytest.param(
        Facts(path="unreached", gradient=0.0, moved=MOVED, decay=0.01),
        ("", "leaks", "no gradient reaches it, yet it moved 0.1 by weight decay 0.01"),
        id="unreached-and-decayed",
    ),
    pytest.param(
        Facts(path="unreached", gradient=0.0, moved=MOVED, decay=0.0),
        ("", "leaks", "by momentum, the optimizer's state from earlier steps"),
        id="unreached-and-carried-on",
    ),
    pytest.param(
        Facts(gradient=0.0, later=0.0, elsewhere=True),
        ("", "zero", "zero on this batch; random inputs give one"),
        id="zero",
    ),
    pytest.param(
        Facts(gradient=0.0, later=0.0, elsewhere=False, moved=MOVED, decay=0.1),
        ("", "dead", "at these weights; it moved 0.1 by weight decay 0.1"),
        id="dead-and-decayed",
    ),
    pytest.param(
        Facts(gradient=0.0, later=0.0, elsewhere=False, remark="ScaleGradient at 'a' has"),
        ("", "dead", "at these weights; ScaleGradient at 'a' has"),
        id="dead-with-a-remark",
    ),
    # meant to move, but not in the optimizer
    pytest.param(
        Facts(in_optimizer=False),
        ("", "stale", "requires_grad is True, but no optimizer holds it"),
        id="stale-not-in-the-optimizer",
    ),
    pytest.param(
        Facts(in_optimizer=False, replaced=True),
        ("", "stale", "holds another Parameter of that name"),
        id="stale-replaced",
    ),
    pytest.param(
        Facts(in_optimizer=False, by_step=True, path="unreached", cut="Stop", stopped=True),
        ("unreached", "held", "no gradient reaches it: Stop, so TrainStep leaves it out"),
        id="held-by-a-stop",
    ),
    pytest.param(
        Facts(in_optimizer=False, by_step=True, path="unreached"),
        ("unreached", "unreached", "TrainStep leaves it out; freeze it if that is meant"),
        id="unreached-and-left-out",
    ),
    pytest.param(
        Facts(in_optimizer=False, moved=MOVED, update="WeightUpdates"),
        ("", "trained", "it moved 0.1 by WeightUpdates, the optimizer does not hold it"),
        id="trained-by-an-update",
    ),
    # meant to stay
    pytest.param(
        Facts(claims=FROZEN, flag=False, in_optimizer=False),
        (FROZEN, "held", "frozen by freeze('fc')"),
        id="held-frozen",
    ),
    pytest.param(
        Facts(flag=False, in_optimizer=False),
        ("requires_grad", "held", "requires_grad is False"),
        id="held-by-its-flag",
    ),
    pytest.param(
        Facts(left_out="trainable=", in_optimizer=False),
        ("trainable=", "held", "left out by trainable="),
        id="held-left-out",
    ),
    pytest.param(
        Facts(hold=True, gradient=1.0), ("hold", "held", "by the HoldOptimizer"), id="held-on-hold"
    ),
    pytest.param(
        Facts(flag=False, gradient=1.0, moved=MOVED),
        ("requires_grad", "leaks", "yet it moved 0.1 by a stale optimizer"),
        id="leaks-stale-optimizer",
    ),
    pytest.param(
        Facts(flag=False, gradient=1.0, moved=MOVED, ignored=True, decay=0.1),
        ("requires_grad", "leaks", "yet it moved 0.1 by weight decay 0.1"),
        id="leaks-decay-in-pynative-mode",
    ),
    pytest.param(
        Facts(flag=False),
        ("requires_grad", "stale", "decay or momentum would move it; make the optimizer after"),
        id="stale-still-in-the-optimizer",
    ),
    pytest.param(
        Facts(claims=FROZEN, flag=False, in_optimizer=False, moved=MOVED),
        (FROZEN, "leaks", "yet it moved 0.1 by an assignment in the step"),
        id="leaks-assigned",
    ),
    pytest.param(
        Facts(flag=False, in_optimizer=False, moved=MOVED),
        ("requires_grad", "trained", "by an assignment of the model's or the step's own"),
        id="trained-by-the-model",
    ),
    pytest.param(
        Facts(claims=FROZEN, flag=False, in_optimizer=False, moved=MOVED, update="WeightUpdates"),
        (FROZEN, "trained", "frozen by freeze('fc'), and changed by WeightUpdates on demand"),
        id="trained-on-demand",
    ),
    # others
    pytest.param(
        Facts(broken="it is not finite", flag=False),
        ("requires_grad", "not finite", "it is not"),
        id="not-finite-before-all",
    ),
    pytest.param(
        Facts(kind="statistic", flag=False, in_optimizer=False, moved=MOVED),
        ("statistic", "trained", "running statistic, it moved 0.1 by the forward pass"),
        id="statistic",
    ),
    pytest.param(
        Facts(kind="statistic", flag=False, in_optimizer=False),
        ("statistic", "held", "running statistic, did not move"),
        id="statistic-in-evaluation",
    ),
    pytest.param(
        Facts(kind="statistic", flag=False, in_optimizer=False, claims=FROZEN),
        (FROZEN, "held", "frozen by freeze('fc')"),
        id="statistic-frozen",
    ),
    pytest.param(
        Facts(kind="statistic", flag=False, in_optimizer=False, claims=FROZEN, moved=MOVED),
        (FROZEN, "leaks", "of a step that was compiled before the freeze; use TrainStep"),
        id="statistic-leaks",
    ),
    pytest.param(
        Facts(
            kind="statistic",
            flag=False,
            in_optimizer=False,
            claims=FROZEN,
            moved=MOVED,
            adapting=True,
        ),
        (FROZEN, "trained", "adapts while its layer is frozen, as statistics=False asks"),
        id="statistic-adapting",
    ),
    pytest.param(
        Facts(kind="statistic", flag=False, in_optimizer=False, by_hand=True, moved=MOVED),
        ("statistic", "leaks", "whose weights are frozen by their flags, yet it moved 0.1"),
        id="statistic-of-a-layer-frozen-by-hand",
    ),
    pytest.param(
        Facts(kind="statistic", moved=MOVED),
        ("statistic", "leaks", "that the optimizer holds, since its requires_grad is True"),
        id="statistic-in-the-optimizer",
    ),
    pytest.param(
        Facts(kind="integer", in_optimizer=False, moved="it moved 1"),
        ("integer", "trained", "integer, it moved 1 by the forward pass"),
        id="integer",
    ),
    pytest.param(
        Facts(kind="buffer", flag=False, in_optimizer=False),
        ("buffer", "held", "buffer, no optimizer moves it"),
        id="buffer",
    ),
]


@pytest.mark.parametrize(("facts", "expected"), CASES)
def test_the_verdict_follows_from_the_facts(facts: Facts, expected: tuple[str, str, str]):
    rule, verdict, reason = verdict_on(facts)
    assert (rule, verdict) == expected[:2]
    assert expected[2] in reason
