"""Every shipped config: its dry run with the expected names, and a short run on the CPU.

A new config needs a row in `EXPECTED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mindspore as ms
import pytest

from msgrad.runs import build, dry_run, load_config, train

CONFIGS = {path.stem: path for path in (Path(__file__).parents[2] / "configs").glob("*.yaml")}


@dataclass(frozen=True)
class Expected:
    """What a config does.

    Attributes:
        trains: For each stage, and in it each train step, what the names of the weights begin with
            that train; all others stay.
        stays: Why the others stay: fates, without the rule.
        short: Changes that make it a run of two or three steps for each stage.
        slow: Whether that takes more than a few seconds.
    """

    trains: Sequence[Sequence[str]]
    stays: frozenset[str] = frozenset()
    short: tuple[str, ...] = ()
    slow: bool = False


DIGITS = ("epoch_size=1", "batch_size=479")  # of 1437 digits
HALF = ("batch_size=300", "ckpt_path=")
STAGES = ("epoch_size=3", "stages.0.epochs=1", "stages.1.epochs=1")
SMALL_RESNET = (
    "device_target=CPU",
    "batch_size=4",
    *(f"task_args.{key}" for key in ("blocks=[1,1,1,1]", "width=8", "image_size=32")),
    "task_args.random_rows=8",
)
ALL, REST = ("conv1.", "conv2.", "conv3.", "head."), ("conv2.", "conv3.", "head.")
RESNET = ("conv1.", "bn1.", "layer1.", "layer2.", "layer3.", "layer4.", "end_point.")
PAIR = Expected([("discriminator.",), ("generator.",)], frozenset(["left to another step"]), DIGITS)
EXPECTED = {
    "digits_baseline": Expected([ALL], short=DIGITS),
    "digits_domain": Expected([("features.", "digit.", "judge.")], short=DIGITS),
    "digits_freeze_conv1": Expected([REST], frozenset(["frozen"]), DIGITS),
    "digits_pretrain": Expected(
        [("backbone.", "low.")], frozenset(["frozen"]), ("epoch_size=1", *HALF)
    ),
    # no rule stops it, and what `construct` stops is seen by --reach alone
    "digits_stop_by_hand": Expected([ALL], short=DIGITS),
    "digits_stop_conv1": Expected([REST], frozenset(["stopped"]), DIGITS),
    "digits_transfer": Expected(
        [("high.",), ("backbone.2.", "high."), ("backbone.", "high.")],
        frozenset(["frozen"]),
        (*STAGES, *HALF),
    ),
    "gan_freeze": PAIR,
    # the stop takes a term of the loss from the generator, which still has another
    "gan_stop": PAIR,
    "mlp_layer_updates": Expected([("fc1.", "fc2.", "fc3.")]),
    "resnet50_cifar10_ascend": Expected(
        [("end_point.",), ("layer4.", "end_point."), RESNET],
        frozenset(["frozen"]),
        (*STAGES, *SMALL_RESNET),
        slow=True,
    ),
}
STATISTICS = {"moving_mean", "moving_variance"}
RUNS = [
    pytest.param(name, marks=[pytest.mark.slow] if expected.slow else [])
    for name, expected in EXPECTED.items()
    # the last test trains this one
    if name != "digits_stop_by_hand"
]


def begins(name: str, prefixes: Sequence[str]) -> bool:
    return name.startswith(tuple(prefixes))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shipped_config_does_to_every_weight_what_is_expected(name):
    expected = EXPECTED[name]
    found = dry_run(build(load_config(CONFIGS[name]), dry=True))
    assert len(found.stages) == len(expected.trains)
    stays = set()
    for stage, prefixes in zip(found.stages, expected.trains, strict=True):
        weights = [fate for fate in stage.fates if not fate.is_statistic]
        wanted = {fate.name for fate in weights if begins(fate.name, prefixes)}
        assert {fate.name for fate in weights if fate.moves} == wanted
        # each of the patterns is needed
        assert all(any(name.startswith(prefix) for name in wanted) for prefix in prefixes)
        stays |= {fate.fate for fate in weights if not fate.moves}
    assert stays == expected.stays


@pytest.mark.parametrize("name", RUNS)
def test_a_shipped_config_trains_and_what_it_holds_keeps_its_bits(name):
    expected = EXPECTED[name]
    ms.set_context(mode=ms.GRAPH_MODE)
    run = build(load_config(CONFIGS[name], expected.short))
    figures = train(run)
    ever = [prefix for prefixes in expected.trains for prefix in prefixes]
    rows = {row.name: row for row in figures.movement.rows}
    held = {n for n in rows if not begins(n, ever) and n.rpartition(".")[2] not in STATISTICS}
    assert set(figures.held) == held
    assert {n for n in held if rows[n].bits_changed} == set()
    assert {n for n in rows if begins(n, ever) and not rows[n].bits_changed} == set()
    assert len(figures.epochs) == run.config.epoch_size


def test_a_stop_by_hand_lets_weight_decay_shrink_conv1_as_computed():
    """Without a gradient a step multiplies each weight by 1 - learning rate × weight decay."""
    run = build(load_config(CONFIGS["digits_stop_by_hand"], DIGITS))
    largest = abs(run.net.conv1.weight.asnumpy()).max()
    figures = train(run)
    moved = next(r.max_change for r in figures.movement.rows if r.name == "conv1.weight")
    assert moved == pytest.approx(largest * (1 - (1 - 0.005 * 0.1) ** 3), rel=1e-3)
    assert figures.held == ()
