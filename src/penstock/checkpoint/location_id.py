"""The id of a checkpoint location, in its file ``metadata``: ``{"id":"<uuid>"}``.

The first driver of a location sets it, and it never changes.

Source: Spark's StreamMetadata.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

from penstock.checkpoint.checksum import ChecksummedFiles
from penstock.checkpoint.log_format import MalformedLogError, dump_json, parse_fields
from penstock.errors import AlreadyExistsError, LogFormatError, NotFoundError
from penstock.storage import Storage

METADATA = "metadata"


class LocationId:
    """The id of the location in that storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files = ChecksummedFiles(storage)

    def ensure(self) -> None:
        """Create the id unless the location has one. Raises StorageError when it cannot."""
        if not self._storage.exists(METADATA):
            # On a store without locks another driver may be faster; its id is equally good.
            with suppress(AlreadyExistsError):
                self._files.create(METADATA, _encode(str(uuid.uuid4())))

    def read(self) -> str:
        """Return the id. Raises LogFormatError when it is missing or damaged."""
        try:
            return _decode(self._files.read(METADATA))
        except NotFoundError as error:
            raise self._damaged(
                "the file is missing",
                "restore it from a backup; only a location that no driver has used yet has none",
            ) from error
        except MalformedLogError as error:
            raise self._damaged(str(error), error.hint) from error.__cause__

    def _damaged(self, message: str, hint: str) -> LogFormatError:
        return LogFormatError(
            message, operation="read metadata", path=self._storage.uri(METADATA), hint=hint
        )


def _encode(location_id: str) -> bytes:
    return dump_json({"id": location_id}).encode()


def _decode(data: bytes) -> str:
    try:
        location_id = str(uuid.UUID(parse_fields(data.decode())["id"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedLogError(f"the file holds no id: {data!r}") from error
    if _encode(location_id) != data:
        raise MalformedLogError(f"the file is not in the form that Spark writes: {data!r}")
    return location_id
