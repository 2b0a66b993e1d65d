"""A stage, and stages that unfreeze a network bit by bit."""

from __future__ import annotations

import pytest

import msgrad as mg

WRONG = [
    pytest.param({}, ValueError, r"stage has neither of train= and freeze=", id="nothing"),
    pytest.param({"train": "a", "freeze": "b"}, ValueError, r"has both of train=", id="both"),
    pytest.param(
        {"train": "a", "epochs": 1, "steps": 2}, ValueError, r"epochs=1 and steps=2", id="lengths"
    ),
    pytest.param({"train": "a", "epochs": -1}, ValueError, r"-1 epochs long; give 0", id="below-0"),
    pytest.param({"train": "a", "steps": 1.5}, TypeError, r"1\.5 steps long; give a", id="float"),
    pytest.param({"train": "a", "freeze": 2}, ValueError, r"has both of train=", id="by-place"),
    pytest.param({"train": 2}, TypeError, r"2 as its pattern; give a name, and", id="number"),
    pytest.param({"train": "a", "epochs": True}, TypeError, r"True epochs long", id="bool"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_a_stage_that_says_too_much_or_too_little_is_refused(
    given: dict, error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        mg.Stage(**given)


def test_a_stage_reads_as_it_is_written():
    assert repr(mg.Stage(freeze=["a", "!a.b"], steps=3, dropout=False)) == (
        "Stage(freeze=['a', '!a.b'], steps=3, dropout=False)"
    )


def test_gradual_stages_begin_at_the_output_and_end_open():
    stages = mg.gradual_stages(["stem", ["body", "neck"], "head"], epochs=[2, 3])
    assert [(s.train, s.epochs) for s in stages] == [
        (["head"], 2),
        ([["body", "neck"], "head"], 3),
        (["stem", ["body", "neck"], "head"], None),
    ]


@pytest.mark.parametrize("layers", [[], "head"], ids=["empty", "string"])
def test_layers_that_are_no_list_are_refused(layers: object):
    with pytest.raises(ValueError, match="is no list of layers; give one pattern for each"):
        mg.gradual_stages(layers, epochs=1)  # pyright: ignore[reportArgumentType]


def test_another_number_of_lengths_is_refused():
    with pytest.raises(ValueError, match="3 lengths for 1 stages before the last; give 1"):
        mg.gradual_stages(["a", "b"], epochs=[1, 2, 3])
