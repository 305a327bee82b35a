"""Where a part of a program connects to, which tells parts of one kind apart."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

__all__ = ["addresses", "digest", "is_own"]

_ADDRESS = re.compile(
    "host|port|path|prefix|director|folder|file|bucket|ur[il]|topic|pattern|table|bootstrap"
)
_SECRET = re.compile("secret|passw|token|lost")


def digest(parts: Iterable[str]) -> str:
    """Return a short digest of texts, the same in each process."""
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]


def is_own(value: Any) -> bool:
    """Whether a function, or what a value is an instance of, is penstock's own."""
    return str(getattr(value, "__module__", "")).startswith("penstock.")


def addresses(part: Any, apart: tuple[type, ...] = (), depth: int = 5) -> Iterator[str]:
    """Yield addresses by the names of attributes and closure variables.

    Args:
        part: the object that has them, also in others.
        apart: what is a part of its own.
        depth: how many objects are looked into, each in the one before.
    """
    for name, value in _inside(part).items():
        if isinstance(value, str | int | list | tuple | re.Pattern):
            if _ADDRESS.search(name) and not _SECRET.search(name):
                yield f"{name.strip('_')}={value!r}"
        elif depth and not _SECRET.search(name) and _is_followed(name, value, apart):
            yield from addresses(value, apart, depth - 1)


def _inside(part: Any) -> dict[str, Any]:
    if isinstance(part, Mapping):
        return {str(name): value for name, value in part.items()}
    if isinstance(part, partial):
        return {str(place): each for place, each in enumerate((part.func, *part.args))} | {
            **part.keywords
        }
    found = dict(getattr(part, "__dict__", {}))
    found |= {name: getattr(part, name, None) for name in getattr(part, "__slots__", ())}
    if isinstance(part, FunctionType) and part.__closure__:
        cells = zip(part.__code__.co_freevars, part.__closure__, strict=True)
        found |= {name: cell.cell_contents for name, cell in cells if cell != CellType()}
    return found | ({"owner": part.__self__} if isinstance(part, MethodType) else {})


def _is_followed(name: str, value: Any, apart: tuple[type, ...]) -> bool:
    if isinstance(value, (ModuleType, type, *apart)) or name == "_ssc":
        return False
    return name == "owner" or isinstance(value, dict) or callable(value) or is_own(value)
