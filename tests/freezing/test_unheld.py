"""What a freeze does not hold is named: cells that nothing can hold, and norms frozen in part."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import mindspore as ms
import pytest
from mindspore import mint, nn

import msgrad as mg
from tests.nets.behaviour_nets import (
    ConstantDropout,
    FreeDropout,
    FunctionalDropout,
    GuardedDropout,
    Shift,
)

Make = Callable[[], nn.Cell]

UNHELD = [
    pytest.param(
        FreeDropout, "0.1", r"line \d+ of FreeDropout.dropped calls dropout", id="default"
    ),
    pytest.param(
        ConstantDropout,
        "0.1",
        r"line \d+ of ConstantDropout.construct calls dropout",
        id="constant",
    ),
    pytest.param(
        lambda: mint.nn.BatchNorm1d(4, track_running_stats=False),
        "0.1",
        "keeps no running statistics",
        id="untracked",
    ),
    pytest.param(
        lambda: nn.InstanceNorm2d(4),
        "0.1",
        "InstanceNorm always normalises",
        marks=pytest.mark.skipif(
            ms.__version__.startswith("2.7"), reason="MindSpore 2.7 cannot make one"
        ),
        id="instance",
    ),
    pytest.param(
        lambda: mg.StopGradient(FreeDropout()), "0.1", r"FreeDropout\) cannot be held", id="wrapped"
    ),
]


@pytest.mark.parametrize(("make", "path", "why"), UNHELD)
def test_what_cannot_be_held_is_named_with_the_reason_once(make: Make, path: str, why: str):
    net = nn.SequentialCell(nn.SequentialCell(Shift(), make()), Shift())
    with pytest.warns(UserWarning, match=why) as warned:
        mg.freeze(net, "0")
    assert [str(w.message).split("'")[1] for w in warned] == [path]
    assert warned[0].filename == __file__
    mg.freeze(net, "*")
    assert len(warned) == 1


def test_where_warnings_are_errors_nothing_is_frozen_that_cannot_be_held():
    net = nn.SequentialCell(FreeDropout(), Shift()).set_train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="cannot be held still"):
            mg.freeze(net, "0")
    assert mg.frozen_state(net) == "trainable"
    assert net[0].training


def test_a_cell_in_two_places_is_named_once():
    cell = FreeDropout()
    net = nn.SequentialCell(cell, cell, Shift())
    with pytest.warns(UserWarning, match="frozen cell '0'") as warned:
        mg.freeze(net, "0")
    assert len(warned) == 1


def test_a_norm_that_keeps_nothing_is_named_where_statistics_are_to_be_held():
    net = nn.SequentialCell(mint.nn.BatchNorm1d(4, track_running_stats=False), Shift())
    mg.freeze(net, "0", statistics=False)
    with pytest.warns(UserWarning, match="keeps no running statistics"):
        mg.freeze(net, "0", dropout=False)


@pytest.mark.parametrize("make", [FunctionalDropout, GuardedDropout], ids=["told", "guarded"])
def test_dropout_that_asks_for_the_mode_is_not_named(make: Make, recwarn: pytest.WarningsRecorder):
    mg.freeze(nn.SequentialCell(nn.SequentialCell(Shift(), make()), Shift()), "0")
    assert not recwarn.list


def norms() -> nn.SequentialCell:
    return nn.SequentialCell(nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dense(4, 4))


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        pytest.param(lambda: nn.BatchNorm1d(4), "*.gamma", id="gamma"),
        pytest.param(lambda: mint.nn.BatchNorm1d(4, affine=False), "*", id="no-weights"),
    ],
)
def test_a_norm_that_goes_on_adapting_is_named(
    make: Make, pattern: str, caplog: pytest.LogCaptureFixture
):
    net = nn.SequentialCell(nn.Dense(4, 4), make(), nn.Dense(4, 4))
    patterns = ("0", "1") if pattern == "*" else (pattern,)
    mg.freeze(net, *patterns)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "1 norm cells are frozen in part only and go on adapting their statistics: 1"
    ]


def test_a_norm_that_is_unfrozen_in_part_is_named(caplog: pytest.LogCaptureFixture):
    net = norms()
    mg.freeze(net, "*")
    mg.unfreeze(net, "2")
    assert not caplog.records
    mg.unfreeze(net, "*.beta")
    assert "go on adapting their statistics: 1" in caplog.text


def test_nothing_is_said_where_adapting_is_wanted(caplog: pytest.LogCaptureFixture):
    mg.freeze(norms(), "*.gamma", statistics=False)
    assert not caplog.records


def test_a_norm_that_was_named_before_is_not_named_for_another_freeze(
    caplog: pytest.LogCaptureFixture,
):
    net = norms()
    mg.freeze(net, "1.gamma")
    caplog.clear()
    mg.freeze(net, "0")
    mg.unfreeze(net, "0")
    assert not caplog.records
