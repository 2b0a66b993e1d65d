"""The tutorial is true: its programs print what it says, its commands run and end as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from msgrad.cli import _main
from tests.documents.documents import ROOT, blocks_of, parts, printed_by

DOCUMENT = "docs/tutorial.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")
COMMANDS = re.compile(
    r"^```bash\n((?:msgrad .+\n)+)```\n(?:.*\n)*?```text\n((?:[^`].*\n|\n)+)```$", re.M
)


def without_measures(text: str) -> str:
    """Return a table without its widths and fractions, whose last digits the CPU does not keep."""
    return re.sub(r"\d+\.\d+", "#", re.sub(" +", " ", text))


def write_files(folder: Path) -> None:
    """Write what the tutorial tells its reader to save."""
    (folder / "rings.py").write_text(parts(TEXT, "python")[0], encoding="utf-8")
    (folder / "rings.yaml").write_text(parts(TEXT, "yaml")[0], encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tutorial")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def printed(folder: Path) -> list[str]:
    return printed_by(DOCUMENT, folder)


def test_every_program_but_the_first_is_run():
    assert len(parts(TEXT, "python")) == len(blocks_of(DOCUMENT)) + 1


@pytest.mark.parametrize("number", range(len(blocks_of(DOCUMENT))))
def test_a_program_of_the_tutorial_prints_what_it_says(printed: list[str], number: int):
    assert printed[number] == blocks_of(DOCUMENT)[number][1]


@pytest.mark.usefixtures("printed")
def test_its_commands_end_well_and_the_last_of_a_block_prints_what_it_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(folder)
    blocks = COMMANDS.findall(TEXT)
    assert len(blocks) == 2
    for commands, said in blocks:
        for command in commands.splitlines():
            capsys.readouterr()
            assert _main.main(command.split()[1:]) == 0, command
        assert without_measures(capsys.readouterr().out) == without_measures(said)
