"""Checks of receivers' arguments, which are refused where they are given."""

from __future__ import annotations

from penstock.errors import ConfigError


def check(holds: object, problem: str, hint: str, operation: str = "set up receiver") -> None:
    """Raise ConfigError for what does not hold."""
    if not holds:
        raise ConfigError(problem, operation=operation, hint=hint)
