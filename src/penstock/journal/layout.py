"""The paths under a journal's root, and the parsing of their names.

    <stream>/stream.json
    <stream>/<receiver>-<epoch>/_writer.json      claims this epoch; who did, for diagnosis
    <stream>/<receiver>-<epoch>/<start>.parquet   a block or the seal; start in 20 digits
    <stream>/consumers/<name>.json
    <stream>/consumers/<16 hex>.retiring          announcement of a deletion
    <stream>/control/...                          between driver and receivers
    <stream>/receivers/<receiver>/...             a receiver's own small files
    <stream>/receivers/_parts/<number>.json       which writer may publish which part of a source

Pure functions of names; see docs/journal-format.md for the contents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import ConfigError
from penstock.model import check_name

_WRITER = re.compile(r"(?P<receiver>.+)-(?P<epoch>[0-9]{8,})")
_BLOCK = re.compile(r"([0-9]{20})\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class WriterId:
    """One epoch (attempt) of one receiver; its text form is the partition in offset maps."""

    receiver: str
    epoch: int

    def __post_init__(self) -> None:
        check_name("receiver", self.receiver)

    def __str__(self) -> str:
        return f"{self.receiver}-{self.epoch:08d}"


def parse_writer(name: str) -> WriterId | None:
    """Return the writer of a folder or partition of this name, None for any other name."""
    match = _WRITER.fullmatch(name)
    if match is None:
        return None
    try:
        writer = WriterId(match["receiver"], int(match["epoch"]))
    except ConfigError:  # a similar name: no receiver can have it
        return None
    return writer if str(writer) == name else None


def parse_block_start(name: str) -> int | None:
    """Return the start offset in a block's file name, None for any other file."""
    match = _BLOCK.fullmatch(name)
    return int(match[1]) if match else None


def stream_info_path(stream: str) -> str:
    """Return the path of the stream's description."""
    return f"{stream}/stream.json"


def writer_folder(stream: str, writer: WriterId | str) -> str:
    """Return the folder that holds a writer's blocks."""
    return f"{stream}/{writer}"


def claim_path(stream: str, writer: WriterId) -> str:
    """Return the path of the file whose exclusive creation claims the epoch."""
    return f"{writer_folder(stream, writer)}/_writer.json"


def block_path(stream: str, writer: WriterId | str, start_offset: int) -> str:
    """Return the path of the block (or seal) that begins at ``start_offset``."""
    return f"{writer_folder(stream, writer)}/{start_offset:020d}.parquet"


def receiver_folder(stream: str, receiver: str) -> str:
    """Return the folder of a receiver's own files."""
    return f"{stream}/receivers/{check_name('receiver', receiver)}"


def consumers_folder(stream: str) -> str:
    """Return the folder of the consumers' files."""
    return f"{stream}/consumers"


def consumer_path(stream: str, consumer: str) -> str:
    """Return the path of a consumer's file."""
    return f"{consumers_folder(stream)}/{check_name('consumer', consumer)}.json"


def notice_path(stream: str, name: str) -> str:
    """Return the path of an announcement of a retirement by a process that is not a consumer."""
    return f"{consumers_folder(stream)}/{name}.retiring"


def parse_consumer(name: str) -> str | None:
    """Return the consumer of a file of this name, None for any other file."""
    try:
        return (
            check_name("consumer", name.removesuffix(".json")) if name.endswith(".json") else None
        )
    except ConfigError:
        return None
