"""Functions of programs in tests: those of modules pickle by name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def as_ints(values: list[bytes]) -> list[int]:
    return [int(value) for value in values]


def as_bytes(value: Any) -> bytes:
    return str(value).encode()


def is_even(value: int) -> bool:
    return value % 2 == 0


def add(total: int, value: int) -> int:
    return total + value


def fail(value: Any) -> Any:
    raise ValueError(f"no good: {value}")


def note(value: Any, folder: str) -> None:
    """A sink of one's own: a file for each element, named by when it came."""
    Path(folder, f"{time.time_ns()}").write_text(str(value))
