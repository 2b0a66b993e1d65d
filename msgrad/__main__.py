"""`python -m msgrad` is the command `msgrad`."""

from __future__ import annotations

import sys

from msgrad.cli import main

if __name__ == "__main__":
    sys.exit(main())
