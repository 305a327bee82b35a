"""Commands that read need no permission to write, and leave nothing behind."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.main import get_command

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.cli.main import app
from penstock.journal import JournalStream, RecordFormat, commit_consumer
from penstock.storage import open_storage
from tests.cli.commands import Commands, leaf_commands
from tests.journal.helpers import write_blocks

READING = {
    "checkpoint diff": ["{}", "0", "0"],
    "checkpoint inspect": ["{}"],
    "checkpoint validate": ["{}"],
    "journal ls": ["{}"],
    "journal cat": ["{}", "clicks"],
    "journal verify": ["{}"],
    "journal losses": ["{}"],
    "journal consumers ls": ["{}"],
    "kafka offsets": ["{}"],
    "rate": ["--checkpoint", "{}"],
}
WRITING = {
    "checkpoint promote",
    "checkpoint fork",
    "checkpoint rewind",
    "checkpoint undo",
    "journal consumers rm",
    "journal replay",
    "journal skip",
    "rate pause",
    "rate resume",
    "rate set",
}
NO_LOCATION = {"demo", "doctor", "kafka lag", "kafka topics"}
"""Commands that ask others than a location: a machine, or brokers."""

SERVING = {"ui"}
"""Commands that read for as long as they run; their own tests say what they may change."""


@pytest.fixture
def location() -> str:
    """A checkpoint location on an object store, with something for each command to find."""
    url = f"memory://{uuid.uuid4().hex}/location"
    with CheckpointLocation(url) as place:
        ends = ('{"clicks":{"r0-00000000":1}}', '{"words":{"0":7}}')
        place.plan(0, OffsetSeq(1_000_000, sources=ends))
        place.commit(0)
    stream = JournalStream.create(open_storage(f"{url}/journal"), "clicks", RecordFormat("string"))
    commit_consumer(stream, "job", {str(write_blocks(stream, [["a"], ["b"]])): 1})
    open_storage(f"{url}/rdds").create("counts/part-00000", b"x")
    return url


@pytest.fixture
def refused(location: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the store beyond reading, all of which it refuses."""
    asked: list[str] = []

    def refuse(name: str) -> None:
        def method(
            files: MemoryFileSystem, path: str, *arguments: object, **options: object
        ) -> None:
            asked.append(f"{name} {path}")
            raise PermissionError("Access Denied")

        monkeypatch.setattr(MemoryFileSystem, name, method)

    for name in ("pipe_file", "rm_file", "_rm", "mkdir", "makedirs"):
        refuse(name)
    return asked


@pytest.mark.parametrize("command", READING)
def test_a_reading_command_never_writes(location: str, refused: list[str], command: str) -> None:
    arguments = [argument.format(location) for argument in READING[command]]

    printed = Commands(*command.split()).succeed(*arguments)

    assert refused == []
    assert any(found in printed for found in ("clicks", "a", "no losses", "sound"))


@pytest.mark.parametrize("command", [name for name in READING if name.startswith("journal")])
def test_a_journal_is_read_beside_state_that_is_closed(
    location: str, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    info = MemoryFileSystem.info

    def closed(files: MemoryFileSystem, path: str, **options: object) -> object:
        if "/rdds/" in path:
            raise PermissionError("Access Denied")
        return info(files, path, **options)

    monkeypatch.setattr(MemoryFileSystem, "info", closed)

    Commands(*command.split()).succeed(*(each.format(location) for each in READING[command]))


@pytest.mark.parametrize("command", ["journal ls", "journal verify", "journal consumers ls"])
def test_nothing_is_opened_in_a_location_without_a_journal(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    url = f"memory://{uuid.uuid4().hex}/location"
    with CheckpointLocation(url) as place:
        place.plan(0, OffsetSeq(1_000_000, sources=('{"files":{}}',)))
    info = MemoryFileSystem.info

    def closed(files: MemoryFileSystem, path: str, **options: object) -> object:
        if path.rstrip("/").endswith("stream.json"):
            raise PermissionError("Access Denied")
        return info(files, path, **options)

    monkeypatch.setattr(MemoryFileSystem, "info", closed)

    Commands(*command.split()).succeed(url)


def test_a_file_given_as_the_journal_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    error = Commands("journal", "ls").fail(str(tmp_path / "file"))

    assert f"{tmp_path / 'file'} is a file" in str(error)


def test_every_command_is_known_to_read_or_to_write() -> None:
    commands = {name for name, _ in leaf_commands(get_command(app))}
    ingest = {name for name in commands if name.startswith("ingest ")}
    assert commands - ingest == {*READING, *WRITING, *NO_LOCATION, *SERVING}
