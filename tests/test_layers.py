"""The import stack of docs/architecture.md: a module imports only from the rows above its own."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import msgrad as mg

ROOT = Path(__file__).parent.parent
SOURCES = {path.stem: path for path in (ROOT / "msgrad").glob("*.py") if path.stem != "__init__"}
# A row names a layer in its first column, or is of the layer of the row above.
ROW = re.compile(r"^\|([^|\n]*)\| *`(\w+)` *\|", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
STACK = [module for _, module in ROWS]
ENTRY_POINTS = {"__main__"}
LIBRARY = {"mindspore", "msgrad", "numpy"} | sys.stdlib_module_names
TOOLS = {"matplotlib", "rich", "yaml"}


def imports(tree: ast.AST) -> set[str]:
    """Return the dotted modules that code imports; `from msgrad import _x` imports one too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "msgrad":
            found |= {f"msgrad.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def parsed(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def imported_rows(module: str) -> set[str]:
    return {name.split(".")[1] for name in imports(parsed(module)) if name.startswith("msgrad.")}


def first_layer() -> list[str]:
    return STACK[: next(row for row, (layer, _) in enumerate(ROWS) if row and layer.strip())]


def drawn(module: str, above: list[str]) -> str:
    """Draw the stack down to a module, with an arrow at what it imports."""
    wanted = imported_rows(module)
    lines = [f"{'->' if row in wanted else '  '} {row}" for row in [*above, f"[{module}]"]]
    lines += [f"-> {row}  (below, or in no row)" for row in sorted(wanted - set(above))]
    return "\n".join(lines)


def test_every_module_has_one_row_in_the_stack():
    assert sorted(set(SOURCES) - set(STACK) - ENTRY_POINTS) == []
    assert [module for module in STACK if STACK.count(module) > 1] == []


@pytest.mark.parametrize("module", [m for m in STACK if m in SOURCES])
def test_a_module_imports_only_from_rows_above_it(module):
    above = STACK[: STACK.index(module)]
    assert imported_rows(module) <= set(above), "\n" + drawn(module, above)


@pytest.mark.parametrize("module", sorted(SOURCES))
def test_imports_are_absolute_and_of_the_allowed_packages(module):
    tree = parsed(module)
    everywhere = {name.split(".")[0] for name in imports(tree)}
    at_import = {
        name.split(".")[0]
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Try, ast.If))
        for name in imports(node)
    }
    assert at_import - LIBRARY == set()
    assert everywhere - LIBRARY - TOOLS == set()


@pytest.mark.parametrize("module", first_layer())
def test_names_and_errors_import_neither_mindspore_nor_numpy(module):
    packages = {name.split(".")[0] for name in imports(parsed(module))}
    assert packages & {"mindspore", "numpy"} == set()


def public_names(tree: ast.Module) -> set[str]:
    """Return the names without an underscore that a module binds at its top."""
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_the_public_list_is_sorted_and_complete():
    tree = ast.parse((ROOT / "msgrad" / "__init__.py").read_text(encoding="utf-8"))
    assert mg.__all__ == sorted(mg.__all__)
    assert set(mg.__all__) == public_names(tree)


@pytest.mark.parametrize("module", [m for m in SOURCES if not m.startswith("_")])
def test_the_list_of_a_public_module_is_sorted_and_complete(module):
    listed = getattr(mg, module).__all__
    own = {
        node.name
        for node in parsed(module).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    assert listed == sorted(listed)
    assert set(listed) == own


@pytest.mark.parametrize("name", mg.__all__)
def test_every_public_name_exists_and_has_a_docstring(name):
    assert getattr(mg, name).__doc__
