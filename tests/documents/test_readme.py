"""The READMEs are true: their program runs and prints what they say, files and figures exist.

The Chinese one holds the same programs, and the same content in other words.
"""

from __future__ import annotations

import re
import runpy

import pytest
import yaml

import msgrad as mg
from tests.documents.documents import (
    BLOCK,
    ROOT,
    blocks_of,
    headings,
    parts,
    printed_by,
    said,
    tables,
)

README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README_CN.md").read_text(encoding="utf-8")
BOTH = [pytest.param(README, id="english"), pytest.param(CHINESE, id="chinese")]
FIGURE = re.compile(r"^\| (.+?) \| (?:yes|no) \| ([\d.]+) \|$", re.MULTILINE)
BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "what_stops_a_weight.py"))
COMMAND = re.compile(r"(?:bash|python) (\w+/\w+\.\w+)")
CONFIG = re.compile(r"configs/\w+\.yaml")
LINK = re.compile(r"\]\((.+?)\)")
FIRST_SCREEN, MOST_LINES = 30, 160
COMMENT = re.compile(r"\s*# .*$", re.MULTILINE)
# what people type into a search who have the problem that msgrad is for
SEARCHED = [
    "梯度不回传",
    "冻结参数",
    "权重不更新",
    "requires_grad不生效",
    "反向传播",
    "微调",
    "昇腾",
]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    return printed_by("README.md", tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("number", range(len(blocks_of("README.md"))))
def test_a_program_of_the_readme_prints_what_the_readme_says(printed, number):
    assert printed[number] == blocks_of("README.md")[number][1]


def test_every_block_of_python_is_run():
    assert len(parts(README, "python")) == len(blocks_of("README.md"))


@pytest.mark.parametrize("text", BOTH)
def test_a_whole_program_and_its_output_stand_on_the_first_screen(text):
    start = "".join(text.splitlines(keepends=True)[:FIRST_SCREEN])
    ((program, _),) = BLOCK.findall(start)
    calls = re.findall(r"mg\.freeze\(net, \"\w+\"\)|mg\.TrainStep\(|before\.moved\(\)", program)
    assert len(calls) == 3
    assert len(text.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("text", BOTH)
def test_the_first_mention_of_ascend_says_that_nothing_ran_there(text):
    first = next(line for line in text.splitlines() if re.search("Ascend|昇腾", line))
    assert re.search(
        "nothing here has ever run on an Ascend card|从未在真正的昇腾卡上运行过", first
    )


@pytest.mark.parametrize("text", BOTH)
def test_what_a_script_needs_is_installed_before_it_is_called(text):
    commands = "".join(parts(text, "bash"))
    order = [commands.index(word) for word in ("git clone", "pip install", "bash scripts/")]
    assert order == sorted(order)


def test_every_way_of_the_benchmark_stands_in_the_table():
    assert [way for way, _ in FIGURE.findall(README)] == list(BENCHMARK["WAYS"])


@pytest.mark.parametrize(("way", "figure"), FIGURE.findall(README))
def test_a_figure_of_the_table_is_what_the_benchmark_measures(way, figure):
    assert float(f"{BENCHMARK['largest_change'](way):.2g}") == float(figure)


def test_the_config_says_what_the_readme_shows_of_it():
    shown = yaml.safe_load(parts(README, "yaml")[0])
    file = yaml.safe_load((ROOT / "configs" / "digits_transfer.yaml").read_text(encoding="utf-8"))
    assert {key: file[key] for key in shown} == shown


@pytest.mark.parametrize("target", sorted(set(LINK.findall(README))))
def test_a_link_of_the_readme_leads_to_a_file(target):
    assert (ROOT / target.partition("#")[0]).is_file()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bmg\.(\w+)", README))))
def test_what_the_readme_names_is_public(name):
    assert name in mg.__all__


@pytest.mark.parametrize("file", sorted({*COMMAND.findall(README), *CONFIG.findall(README)}))
def test_a_file_of_a_command_of_the_readme_exists(file):
    assert (ROOT / file).is_file()


# --- the Chinese one


def test_each_readme_links_to_the_other_at_its_top():
    assert LINK.findall(README.splitlines()[1]) == ["README_CN.md"]
    assert LINK.findall(CHINESE.splitlines()[1]) == ["README.md"]


@pytest.mark.parametrize("language", ["python", "text", "yaml", "bash"])
def test_the_blocks_of_both_readmes_are_the_same_but_for_comments(language):
    english, chinese = (
        [COMMENT.sub("", part) for part in parts(text, language)] for text in (README, CHINESE)
    )
    assert english == chinese != []


def test_the_headings_of_both_readmes_are_of_the_same_levels():
    levels = [[level for level, _ in headings(text)] for text in (README, CHINESE)]
    assert levels[0] == levels[1]


def test_the_tables_of_both_readmes_hold_the_same_code_and_figures():
    found = [
        [[[said(cell) for cell in row] for row in table] for table in tables(text)]
        for text in (README, CHINESE)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("number", range(len(headings(README))))
def test_a_section_of_both_readmes_holds_the_same_code_figures_and_links(number):
    english, chinese = (headings(text)[number][1] for text in (README, CHINESE))
    assert said(english) == said(chinese)
    top = {"README.md", "README_CN.md"}
    assert set(LINK.findall(english)) - top == set(LINK.findall(chinese)) - top


@pytest.mark.parametrize("word", SEARCHED)
def test_the_chinese_readme_has_the_words_that_people_search_for(word):
    assert word in CHINESE.replace(" ", "")
