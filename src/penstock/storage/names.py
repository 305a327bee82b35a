"""Names of temporary files, which a create writes before it sets the real name."""

from __future__ import annotations

import re
import secrets

# The leading dot also hides such files from Spark, which skips names that start with "." or "_".
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp", re.DOTALL)


def temporary_name(name: str) -> str:
    """Return a new hidden name for a file that will become ``name``."""
    return f".{name}.{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether ``name`` has the form of temporary_name; no file may be created under such a name."""
    # Listings ask this for every name, so the usual answer comes without the pattern.
    return name[:1] == "." and name[-4:] == ".tmp" and _TEMPORARY.fullmatch(name) is not None
