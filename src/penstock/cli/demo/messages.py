"""What the demo's processes tell it: one JSON object a line, on standard output."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse", "say"]


def say(event: str, **facts: Any) -> None:
    """Print an event; raises BrokenPipeError when the reader is gone."""
    print(json.dumps({"event": event, **facts}), flush=True)


def parse(line: str) -> dict[str, Any] | None:
    """Return the event of a line, None when the line is not one (the JVM may print, too)."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and "event" in message else None
