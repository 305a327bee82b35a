r"""``export`` and ``import``: a location as one JSON file, byte for byte.

    {"version":1,"location":"file:///data/words","files":{"offsets/0":{"text":"v1\\n..."}, ...}}

What is no UTF-8 is base64. Temporary files, the driver's lock and undo files are left out.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from penstock.checkpoint.tools.changes.fill import check_free, fill_location
from penstock.checkpoint.tools.changes.plan import dump_content, parse_content
from penstock.checkpoint.tools.changes.position import refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint
from penstock.checkpoint.tools.checks.leftovers import check_names
from penstock.errors import ConfigError, StorageError
from penstock.storage import attach_storage

__all__ = ["ImportPlan", "apply_import", "export_location", "plan_import"]

_VERSION = 1
_AT_ROOT = ("metadata", ".metadata.crc")


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The files of an exported location, and where they are to go."""

    location: str
    """Where they were exported from."""
    target: str
    files: dict[str, bytes]


def export_location(place: str | os.PathLike[str]) -> bytes:
    """Return a location as the text of a JSON file; nothing is judged.

    Raises:
        ConfigError: there is no checkpoint location.
        CheckpointError: a change of it is not finished.
        StorageError: a file cannot be read.
    """
    checkpoint = Checkpoint.open(place)
    if checkpoint.is_barred:
        raise refusal(checkpoint, "a change of it is not finished", "finish it, or take it back")
    leftovers = {finding.path for finding in check_names(checkpoint.files, is_penstock=False)}
    paths = [path for path in sorted(checkpoint.files) if "/" in path or path in _AT_ROOT]
    files = {}
    for path, content in checkpoint.read(p for p in paths if p not in leftovers).items():
        if isinstance(content, StorageError):
            raise content
        files[path] = dump_content(content)
    fields = {"version": _VERSION, "location": checkpoint.url, "files": files}
    return json.dumps(fields, indent=0).encode()


def plan_import(data: bytes, target: str | os.PathLike[str]) -> ImportPlan:
    """Return what an exported location's text puts at a new place, with the same id.

    Raises:
        ConfigError: it is no such text, or the target is not empty.
    """
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"it is of version {fields['version']}, not {_VERSION}")
        contents = {str(path): parse_content(value) for path, value in fields["files"].items()}
        origin = str(fields["location"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"it is no exported checkpoint location ({error!r})",
            operation="import checkpoint location",
            hint="give a file that `penstock checkpoint export` wrote",
        ) from error
    storage = attach_storage(target)
    check_free(storage, origin)
    for path in contents:
        storage.uri(path)  # refuses one that leads out of the location
    files = {path: content for path, content in contents.items() if content is not None}
    return ImportPlan(origin, storage.url, files)


def apply_import(plan: ImportPlan) -> None:
    """Write the files; raises as ``fill_location``."""
    fill_location(plan.target, plan.location, plan.files.items())
