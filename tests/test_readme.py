"""The README is true: its program runs and prints what it says, its files and figures exist."""

from __future__ import annotations

import re
import runpy

import pytest

import msgrad as mg
from tests.documents import BLOCK, ROOT, blocks_of, printed_by

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURE = re.compile(r"^\| (.+?) \| (?:yes|no) \| ([\d.]+) \|$", re.MULTILINE)
BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "what_stops_a_weight.py"))
COMMAND = re.compile(r"(?:bash|python) (\w+/\w+\.\w+)")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    return printed_by("README.md", tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("number", range(len(blocks_of("README.md"))))
def test_a_program_of_the_readme_prints_what_the_readme_says(printed, number):
    assert printed[number] == blocks_of("README.md")[number][1]


def test_a_whole_program_and_its_output_stand_in_the_first_twenty_lines():
    start = "".join(README.splitlines(keepends=True)[:20])
    assert len(BLOCK.findall(start)) == 1


def test_every_way_of_the_benchmark_stands_in_the_table():
    assert [way for way, _ in FIGURE.findall(README)] == list(BENCHMARK["WAYS"])


@pytest.mark.parametrize(("way", "figure"), FIGURE.findall(README))
def test_a_figure_of_the_table_is_what_the_benchmark_measures(way, figure):
    assert f"{BENCHMARK['largest_change'](way):.2g}" == figure


@pytest.mark.parametrize("target", re.findall(r"\]\((.+?)\)", README))
def test_a_link_of_the_readme_leads_to_a_file(target):
    assert (ROOT / target).is_file()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bmg\.(\w+)", README))))
def test_what_the_readme_names_is_public(name):
    assert name in mg.__all__


@pytest.mark.parametrize("script", sorted(set(COMMAND.findall(README))))
def test_a_command_of_the_readme_exists(script):
    assert (ROOT / script).is_file()
