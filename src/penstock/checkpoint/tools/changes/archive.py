r"""``export`` and ``import``: a location as one JSON file, byte for byte.

    {"version":1,"location":"file:///data/words","files":{"offsets/0":{"text":"v1\\n..."}, ...}}

What is not UTF-8 is base64. Temporary files, the driver's lock and undo files are left out.

Invariant: what is imported is data, and never code. ``import`` accepts only paths that ``export``
writes (``_is_portable``). Graph checkpoints and RDD checkpoints of penstock programs are pickles,
which run code when they are read: they are in no export, and a file that has them is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.checkpoint.tools.barrier import is_barrier
from penstock.checkpoint.tools.changes.fill import check_free, fill_location
from penstock.checkpoint.tools.changes.hold import check_not_barred
from penstock.checkpoint.tools.changes.links import check_no_link
from penstock.checkpoint.tools.changes.plan import dump_content, is_plain_path, parse_content
from penstock.checkpoint.tools.changes.position import refusal
from penstock.checkpoint.tools.checkpoint import Checkpoint, is_of_penstock
from penstock.checkpoint.tools.checks.leftovers import leftovers_in
from penstock.checkpoint.tools.reading import AT_ROOT, OF_PROGRAMS, list_folders
from penstock.errors import ConfigError, StorageError
from penstock.storage import attach_storage
from penstock.storage.names import is_temporary

__all__ = ["ImportPlan", "apply_import", "export_location", "plan_import"]

_VERSION = 1
_IN_FOLDERS = re.compile(
    rf"(offsets|commits|sources)/.+|state/[0-9]+/.+|({'|'.join(OF_PROGRAMS)})/[^/]+",
    re.DOTALL,
)


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
        CheckpointError: a change of it is not finished, or it has what cannot be exported: a link,
            a file that Spark's queries do not leave, a name that is not UTF-8.
        StorageError: a file cannot be read.
    """
    checkpoint = Checkpoint.open(place)
    check_not_barred(checkpoint)
    check_no_link(checkpoint)
    leftovers = leftovers_in(checkpoint.files)
    paths = [path for path in sorted(checkpoint.files) if "/" in path or path in AT_ROOT]
    paths = [path for path in paths if path not in leftovers]
    if any(map(is_of_penstock, checkpoint.batches(checkpoint.planned[-1:]))):
        found = list_folders(checkpoint.storage, OF_PROGRAMS)
        paths += [path for path in found if not is_temporary(path.rpartition("/")[2])]
    if (refused := _find_refused(paths)) is not None:
        raise refusal(
            checkpoint,
            f"{refused[:200]!r} cannot be exported: it is not a file that Spark's queries leave",
            "to keep a penstock program's state, copy the whole folder while it is stopped",
        )
    files = {}
    for path, content in checkpoint.read(paths).items():
        if isinstance(content, StorageError):
            raise content
        files[path] = dump_content(content)
    fields = {"version": _VERSION, "location": checkpoint.url, "files": files}
    return json.dumps(fields, indent=0).encode()


def plan_import(data: bytes, target: str | os.PathLike[str]) -> ImportPlan:
    """Return what an exported location's text puts at a new place, with the same id.

    Raises:
        ConfigError: it is not such a text, it has files that ``export`` does not write, or the
            target is not empty.
    """
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"it is of version {fields['version']}, not {_VERSION}")
        contents = {str(path): parse_content(value) for path, value in fields["files"].items()}
        origin = str(fields["location"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_export(f"it is not an exported checkpoint location ({error!r})") from error
    storage = attach_storage(target)
    check_free(storage, origin)
    for path in contents:
        storage.uri(path)  # refuses one that leads out of the location
    if (refused := _find_refused(contents)) is not None:
        raise _no_export(
            f"{refused[:200]!r} is not imported: `penstock checkpoint export` writes none"
        )
    files = {path: content for path, content in contents.items() if content is not None}
    return ImportPlan(origin, storage.url, files)


def apply_import(plan: ImportPlan) -> None:
    """Write the files; raises as ``fill_location``."""
    fill_location(plan.target, plan.location, plan.files.items())


def _find_refused(paths: Iterable[str]) -> str | None:
    """Return a path that is not exported, nor imported; None without one."""
    known = set(paths)
    folders = {path[: found.start()] for path in known for found in re.finditer("/", path)}
    return min((p for p in known if p in folders or not _is_portable(p)), default=None)


def _is_portable(path: str) -> bool:
    is_known = path in AT_ROOT or _IN_FOLDERS.fullmatch(path) is not None
    is_plain = is_plain_path(path) and not is_temporary(path.rpartition("/")[2])
    return is_known and is_plain and not is_barrier(path)


def _no_export(what: str) -> ConfigError:
    return ConfigError(
        what,
        operation="import checkpoint location",
        hint="give a file that `penstock checkpoint export` wrote",
    )
