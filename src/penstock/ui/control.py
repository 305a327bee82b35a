"""What the dashboard may change: what ``penstock rate`` may, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import ConfigError
from penstock.rate import RateOverride
from penstock.status.rate_facts import change_overrides, open_location


def change_rate(path: str, stream: str, action: str, rate: str) -> None:
    """Change the override of an input.

    Raises:
        ConfigError: there is no such input or action, or the rate is not a number above 0.
        StorageError: it could not be made durable.
    """
    storage = open_location(path)
    change_overrides(storage, stream, lambda override: _changed(override, action, rate))


def _changed(override: RateOverride, action: str, rate: str) -> RateOverride:
    if action == "set":
        return replace(override, max_rate=_number(rate))
    if action == "default":
        return replace(override, max_rate=None)
    if action in ("pause", "resume"):
        return replace(override, paused=action == "pause")
    raise ConfigError(
        f"{action[:40]!r} is not an action on a rate",
        operation="change rate",
        hint="it is one of set, default, pause, resume",
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as e:
        raise ConfigError(
            f"the rate {text[:40]!r} is not a number",
            operation="change rate",
            hint="give records per second, such as 5000 or 0.5",
        ) from e
