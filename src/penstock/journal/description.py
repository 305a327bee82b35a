"""stream.json: what a stream holds, and which streams a journal has by it."""

from __future__ import annotations

import json
from contextlib import suppress

from penstock.errors import ConfigError, LogFormatError
from penstock.journal.block import FORMAT_VERSION
from penstock.journal.layout import stream_info_path
from penstock.journal.schema import RecordFormat
from penstock.model import check_name
from penstock.storage import Storage


def encode_description(stream: str, record_format: RecordFormat) -> bytes:
    """Return the description of a stream."""
    info = {"version": FORMAT_VERSION, "stream": stream, "schema": record_format.to_json()}
    return json.dumps(info, indent=2).encode()


def decode_description(data: bytes, stream: str, path: str) -> RecordFormat:
    """Return how the records are stored of a stream whose description is at ``path``.

    Raises:
        LogFormatError: the description is damaged or of a newer version.
    """
    try:
        info = json.loads(data)
        if info["version"] > FORMAT_VERSION:
            raise _newer(path, stream, info["version"])
        return RecordFormat.from_json(info["schema"])
    except (ValueError, KeyError, TypeError, OSError) as e:
        raise LogFormatError(
            "the stream's description cannot be read",
            operation="open stream",
            path=path,
            ids={"stream": stream},
            hint="restore stream.json from another stream of the same schema",
        ) from e


def other_format(
    storage: Storage, stream: str, found: RecordFormat, wanted: RecordFormat
) -> ConfigError:
    """Return the error for a stream that holds other records than those wanted."""
    return ConfigError(
        f"stream {stream!r} holds records of {found!r}, not {wanted!r}",
        operation="open stream",
        path=storage.uri(stream),
        ids={"stream": stream},
        hint="use another stream name for the new schema",
    )


def stream_names(storage: Storage) -> list[str]:
    """Return the names of the streams under a journal's root, sorted; other folders are left out.

    Opens none of them, so that damage to one does not hide the others.
    """
    names = []
    for entry in storage.list():
        if entry.is_folder and storage.exists(stream_info_path(entry.name)):
            with suppress(ConfigError):  # no stream can have that name
                names.append(check_name("stream", entry.name))
    return names


def _newer(path: str, stream: str, version: int) -> LogFormatError:
    return LogFormatError(
        f"the stream has format version {version}, newer than {FORMAT_VERSION}",
        operation="open stream",
        path=path,
        ids={"stream": stream},
        hint="upgrade penstock here to the version that wrote it",
    )
