"""Calls in any order, against a model in NumPy; scripts/sequences.sh plays thousands of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sequences.model import CELLS, WEIGHTS
from tests.sequences.play import Action, assert_no_other_bit_moves

SOME = st.lists(st.sampled_from(WEIGHTS), min_size=1, max_size=5, unique=True)
ONE = st.sampled_from(WEIGHTS)
CELL = st.sampled_from(list(CELLS))
STEP = st.just(("run",))
CALLS = st.one_of(
    st.tuples(st.just("freeze"), SOME, st.booleans()),
    st.tuples(st.just("unfreeze"), SOME),
    st.tuples(st.just("undo"), st.integers(0, 7)),
    st.tuples(st.just("inside"), SOME),
    st.tuples(st.just("stop"), CELL),
    st.tuples(st.just("scale"), CELL, st.sampled_from([0.5, 0.25])),
    st.tuples(st.just("unwrap"), CELL),
    st.tuples(st.just("hold"), ONE),
    st.tuples(st.just("hold_row"), ONE, st.integers(0, 2)),
    st.tuples(st.just("release"), ONE),
    st.tuples(st.just("update"), ONE),
    st.tuples(st.just("mode"), st.booleans()),
    st.sampled_from([("save",), ("load",), ("copy",)]),
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.one_of(STEP, CALLS), max_size=10), st.booleans())
def test_any_sequence_of_calls_moves_what_the_model_says_and_no_other_bit(
    actions: list[Action], graph: bool
):
    with tempfile.TemporaryDirectory() as folder:
        assert_no_other_bit_moves(actions, graph=graph, folder=Path(folder))
