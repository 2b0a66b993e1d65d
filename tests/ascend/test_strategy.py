"""The strategy file of a sharded network names the frozen weights too; dry, as no CPU shards."""

from __future__ import annotations

import pytest

from surroundings import dry_run


@pytest.mark.ascend_dry
@pytest.mark.parametrize(
    ("setting", "named"),
    [
        pytest.param("true", ["trained"], id="as-mindspore-does-by-default"),
        pytest.param("use_device", ["frozen", "trained"], id="as-use-device-sets-it"),
    ],
)
def test_a_strategy_file_names_frozen_weights_too(ascend, tmp_path, setting, named):
    assert dry_run("train_sharded.py", setting, variables=ascend, folder=tmp_path) == named
