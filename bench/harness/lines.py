"""Text to work on: log lines as different from each other as a server's, and lines of words."""

from __future__ import annotations

import random

import pyarrow as pa

__all__ = [
    "EVENT_COLUMNS",
    "LINE_BYTES",
    "WORDS_PER_LINE",
    "event_lines",
    "log_lines",
    "word_lines",
]

LINE_BYTES = 78
"""Bytes of a log line with its newline."""

WORDS_PER_LINE = 16

EVENT_COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("user", pa.string()),
        ("path", pa.string()),
        ("ms", pa.float64()),
        ("agent", pa.string()),
    ]
)
"""Of ``event_lines``."""

_VOCABULARY = 5_000

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


def word_lines(count: int, seed: int = 7) -> bytes:
    """Return that many lines of WORDS_PER_LINE words, few of them frequent as in a language."""
    chance = random.Random(seed)
    words = [f"{'aeiou'[n % 5]}{n:x}" for n in range(_VOCABULARY)]
    weights = [1 / (rank + 1) for rank in range(_VOCABULARY)]
    drawn = chance.choices(words, weights, k=count * WORDS_PER_LINE)
    lines = (drawn[at : at + WORDS_PER_LINE] for at in range(0, len(drawn), WORDS_PER_LINE))
    return ("\n".join(map(" ".join, lines)) + "\n").encode()


def event_lines(count: int, seed: int = 7) -> bytes:
    """Return that many lines of JSON, of about 150 bytes, the same for the same seed."""
    chance = random.Random(seed)
    lines = (
        f'{{"id": {number}, "user": "user-{chance.randrange(10**6)}", '
        f'"path": "{chance.choice(_PATHS)}", "ms": {chance.random() * 900:.3f}, '
        f'"agent": "Mozilla/5.0 (X11; Linux x86_64) {chance.getrandbits(64):016x}"}}\n'
        for number in range(count)
    )
    return "".join(lines).encode()
