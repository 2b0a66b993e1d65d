"""Audit a config: a few real steps, and what happened to every weight and why.

python scripts/audit.py --config configs/digits_freeze_conv1.yaml --html audit.html
"""

from __future__ import annotations

import argparse
import sys

from msgrad.cli import main as msgrad


def main() -> None:
    """Read the command line and run `msgrad audit`; exit with 1 where it finds problems."""
    parser = argparse.ArgumentParser(description="Run a few real steps of a config and explain.")
    parser.add_argument("--config", required=True, help="a YAML file, see configs/")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="change keys of the config"
    )
    parser.add_argument("--html", metavar="PATH", help="also write a page with a picture")
    parser.add_argument("--json", action="store_true", help="print JSON, for machines")
    given = parser.parse_args()
    words = ["audit", given.config]
    words += ["--set", *given.set] if given.set else []
    words += ["--html", given.html] if given.html else []
    sys.exit(msgrad([*words, "--json"] if given.json else words))


if __name__ == "__main__":
    main()
