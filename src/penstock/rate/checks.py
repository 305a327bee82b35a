"""Checks of arguments: a number that is out of range is refused at once."""

from __future__ import annotations

import math

from penstock.errors import ConfigError


def positive(name: str, value: float) -> float:
    """Return ``value`` if it is finite and above 0, else raise ConfigError."""
    if not 0 < value < math.inf:  # NaN compares false
        raise _refused(name, value, "a finite number above 0")
    return value


def non_negative(name: str, value: float) -> float:
    """Return ``value`` if it is finite and not below 0, else raise ConfigError."""
    if not 0 <= value < math.inf:
        raise _refused(name, value, "a finite number of 0 or more")
    return value


def _refused(name: str, value: float, wanted: str) -> ConfigError:
    return ConfigError(
        f"{name} is {value!r}",
        operation="set a rate parameter",
        ids={"parameter": name},
        hint=f"give {wanted}",
    )
