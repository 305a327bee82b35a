"""The files that logs of Spark name: those that file sources have read.

Spark names a file by its URI, with percent-encoding: ``a%20b`` is the file ``a b``, and never one
of the name ``a%20b``.
"""

from __future__ import annotations

import os
from urllib.parse import unquote_to_bytes

from penstock.errors import ConfigError
from penstock.storage import local_root


def local_path(uri: str) -> str | None:
    """Return the path of a file on this machine; None for one elsewhere, or no absolute path."""
    try:
        root = local_root(uri)
    except ConfigError:
        return None
    if root is None or not os.path.isabs(root):
        return None
    return os.fsdecode(unquote_to_bytes(root))
