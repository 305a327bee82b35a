"""Where a stream of Kafka records begins, as text."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Literal, cast

from penstock.errors import ConfigError
from penstock.receivers.kafka import Starting

__all__ = ["parse_starting"]


def parse_starting(text: str) -> Starting:
    """Return ``latest``, ``earliest``, the time in ISO 8601, or the offsets in JSON.

    Raises:
        ConfigError: it is none of these.
    """
    if text in ("latest", "earliest"):
        return cast("Literal['latest', 'earliest']", text)
    try:
        if text.lstrip().startswith("{"):
            return {
                str(topic): {int(partition): int(offset) for partition, offset in offsets.items()}
                for topic, offsets in json.loads(text).items()
            }
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{text!r} does not say where to begin",
            operation="set up Kafka receiver",
            hint='give latest, earliest, 2026-11-21T03:00:00Z, or {"clicks":{"0":120}}',
        ) from error
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)
