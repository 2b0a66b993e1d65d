"""Optional packages: imported when needed; a missing one is answered by the install line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from msgrad.errors import MissingPackageError


def needed(module: str, purpose: str, install: str = "msgrad[tools]") -> Any:
    """Import a module of an optional package.

    Args:
        module: Its dotted name.
        purpose: What it is needed for, as the subject of the message.
        install: What pip installs to get it.

    Returns:
        The module.

    Raises:
        MissingPackageError: The package is not installed; the message says how to install it.

    Examples:
        >>> needed("json", "a table").dumps({})
        '{}'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingPackageError(
            f"{purpose} needs {package}, which is not installed; pip install '{install}'",
            name=error.name,
        ) from error
