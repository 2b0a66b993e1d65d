"""Every config compiles for Ascend, each of its steps in each stage: as one of eight cards."""

from __future__ import annotations

import pytest

from surroundings import ROOT, dry_run

CONFIGS = {path.stem: str(path) for path in sorted((ROOT / "configs").glob("*.yaml"))}
# What each step trains in each stage, in order: (step, stage) → number of weights.
TRAINED = {
    "digits_baseline": {("train", None): 7},
    "digits_domain": {("both", None): 10},
    "digits_freeze_conv1": {("train", None): 6},
    "digits_pretrain": {("train", None): 11},
    "digits_stop_by_hand": {("train", None): 7},
    "digits_stop_conv1": {("train", None): 6},
    "digits_transfer": {("train", 1): 2, ("train", 2): 5, ("train", 3): 11},
    "gan_freeze": {("discriminator", None): 6, ("generator", None): 6},
    "gan_stop": {("discriminator", None): 6, ("generator", None): 6},
    "mlp_layer_updates": {("train", None): 6},
    "resnet50_cifar10_ascend": {("train", 1): 2, ("train", 2): 32, ("train", 3): 161},
}


def test_every_config_is_in_the_table():
    assert set(TRAINED) == set(CONFIGS)


@pytest.mark.ascend_dry
@pytest.mark.parametrize("name", CONFIGS)
def test_each_step_compiles_in_each_stage_and_reduces_and_writes_what_it_trains(
    name, ascend_place, tmp_path, record_property
):
    place, variables = ascend_place
    rows = dry_run("compile_config.py", CONFIGS[name], variables=variables, folder=tmp_path)
    record_property("ascend_dry_with", place)
    record_property("ascend_dry", [_shown(name, row) for row in rows])
    assert {(row["step"], row["stage"]): len(row["trained"]) for row in rows} == TRAINED[name]
    for row in rows:
        assert row["all_reduce"] == len(row["trained"])
        assert row["written"] == sorted({*row["trained"], *row["updated"]})
    # each stage of these trains more than the one before it
    if name in ("digits_transfer", "resnet50_cifar10_ascend"):
        assert [row["kernels"] for row in rows] == sorted({row["kernels"] for row in rows})
    if name == "resnet50_cifar10_ascend":
        assert rows[0]["peak"] < rows[-1]["peak"] / 4


def _shown(name, row):
    stage = f", stage {row['stage']}" if row["stage"] else ""
    peak = f"{row['peak'] / 1e6:,.1f} MB" if row["peak"] >= 1e6 else f"{row['peak'] / 1e3:,.0f} kB"
    numbers = [f"{value:,}" for value in (len(row["trained"]), row["kernels"], row["all_reduce"])]
    return name, row["step"] + stage, *numbers, peak
