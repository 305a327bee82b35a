"""Log lines to work on: all of one length, as different from each other as those of a server."""

from __future__ import annotations

import random

__all__ = ["LINE_BYTES", "log_lines"]

LINE_BYTES = 78
"""Bytes of a line with its newline."""

_LEVELS = ("INFO", "INFO", "INFO", "WARN", "DEBUG", "ERROR")
_PATHS = ("/api/v1/orders", "/api/v1/items", "/login", "/static/app.js", "/search", "/health")


def log_lines(count: int, seed: int = 7) -> bytes:
    """Return that many lines of LINE_BYTES bytes, the same for the same seed."""
    chance = random.Random(seed)
    lines = []
    at_ms = 0
    for _ in range(count):
        at_ms += chance.randrange(20)
        seconds, milliseconds = divmod(at_ms, 1000)
        line = (
            f"2026-03-01T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}."
            f"{milliseconds:03}Z {chance.choice(_LEVELS)} user={chance.randrange(10**6)} "
            f"GET {chance.choice(_PATHS)} {chance.choice((200, 200, 200, 304, 404, 500))} "
            f"{chance.random() * 900:.3f}ms id={chance.getrandbits(64):016x}"
        )
        lines.append(line[: LINE_BYTES - 1].ljust(LINE_BYTES - 1, "."))
    return ("\n".join(lines) + "\n").encode()
