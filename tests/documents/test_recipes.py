"""The recipes are true: each program prints what the document says."""

from __future__ import annotations

import pytest

from tests.documents.documents import blocks_of, printed_by

DOCUMENT = "docs/recipes.md"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return printed_by(DOCUMENT, tmp_path_factory.mktemp("recipes"))


@pytest.mark.parametrize("number", range(len(blocks_of(DOCUMENT))))
def test_a_recipe_prints_what_it_says(printed: list[str], number: int):
    assert printed[number] == blocks_of(DOCUMENT)[number][1]
