"""Deletes many files of a store in few requests, and reports each one that remains.

S3 answers a bulk delete with an error for each object that stays. Its driver drops them
(``S3FileSystem._bulk_delete``), so S3's request is made here. The other drivers raise.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

_MOST_OBJECTS = 1000
"""S3 takes no more in one request."""


def bulk_delete(files: Any, places: Sequence[str]) -> None:
    """Delete files by a driver of fsspec; S3 ignores those that are not there.

    Raises:
        FileNotFoundError: a driver stopped at one that is not there.
        Exception: of the driver; any of the files may be left.
    """
    if not hasattr(files, "call_s3"):
        files.rm(list(places))
        return
    failed: list[dict[str, str]] = []
    for start in range(0, len(places), _MOST_OBJECTS):
        paths = [files.split_path(place) for place in places[start : start + _MOST_OBJECTS]]
        wanted = {"Objects": [{"Key": key} for _, key, _ in paths], "Quiet": True}
        answer = files.call_s3("delete_objects", Bucket=paths[0][0], Delete=wanted)
        failed += answer.get("Errors", ())
    if failed:
        first = failed[0]
        denied = first.get("Code") == "AccessDenied"
        raise OSError(
            errno.EACCES if denied else errno.EIO,
            f"{len(failed)} of {len(places)} objects stay, the first of them {first.get('Key')}: "
            f"{first.get('Code')}, {first.get('Message')}",
        )
