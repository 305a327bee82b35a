"""The file descriptors of this process: each connection and each followed file takes one.

A process without any left can neither write the journal nor say so. So receivers that open as many
as their sources have keep to what ``spare_descriptors`` leaves them.
"""

from __future__ import annotations

import resource
import sys
from contextlib import suppress

_FOR_OTHERS = 128
_LEAST = 16


def spare_descriptors() -> int:
    """Return how many descriptors this process may spend on what its sources ask for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(soft - _FOR_OTHERS, _LEAST)


def is_near_limit(descriptor: int) -> bool:
    """Whether a new descriptor shows that few are left: the system gives the lowest free number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return False
    return descriptor >= soft - min(_FOR_OTHERS // 2, soft // 8)


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one, as Java and Go programs do.

    The soft limit is low (1,024, usually) for programs that wait with select(), as none here does.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # macOS: what it calls unlimited it does not take
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
