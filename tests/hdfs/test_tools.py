"""The commands on locations and journals that are on HDFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.checkpoint.tools import (
    apply_plan,
    inspect,
    last_state,
    plan_rewind,
    validate,
)
from penstock.errors import ConfigError
from penstock.journal import JournalStream
from penstock.storage import open_storage
from tests.checkpoint.tools.queries import write_query, write_stateless
from tests.checkpoint.tools.test_changes import files_of
from tests.cli.commands import Commands
from tests.ingest_process import ingest
from tests.journal.helpers import read_all
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hdfs")]

CHECKPOINT = Commands("checkpoint", columns=200)


def put(place: Path, url: str) -> None:
    for checksum in place.rglob(".*.crc"):  # HDFS has its own
        checksum.unlink()
    storage = open_storage(url)
    for path, content in files_of(place).items():
        storage.create(path, content)


def test_a_location_on_hdfs_is_read(folder: str, tmp_path: Path) -> None:
    place = write_query(tmp_path / "query", batches=5)
    put(place, folder)
    there, here = inspect(folder), inspect(place)
    assert there.batches == here.batches
    assert (there.operators, there.next, there.id) == (here.operators, here.next, here.id)
    assert last_state(folder).next.first == 5
    assert validate(folder).findings == ()
    open_storage(folder).create("offsets/4", b"", overwrite=True)
    assert [each.path for each in validate(folder).findings] == ["offsets/4"]
    with pytest.raises(ConfigError, match="not a checkpoint location"):
        inspect(f"{folder}/none")


def test_a_location_on_hdfs_is_copied_and_taken_back(folder: str, tmp_path: Path) -> None:
    place = write_stateless(tmp_path / "query", batches=5)
    put(place, folder)
    CHECKPOINT.succeed("fork", folder, str(tmp_path / "fork"), "--apply")
    assert inspect(tmp_path / "fork").next.first == 5
    for each in (folder, place):
        apply_plan(plan_rewind(each, to_batch=1))
    assert inspect(folder).next == inspect(place).next


def test_lines_are_ingested_there(folder: str, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("".join(f"line {number}\n" for number in range(100)))
    source = ["tail", str(tmp_path / "app.log"), "--journal", f"{folder}/journal"]
    with ingest(tmp_path, "ingest", *source, "--stream", "lines") as process:
        process.wait_receiving()
        stream = JournalStream.open(open_storage(f"{folder}/journal"), "lines")
        assert eventually(lambda: len(read_all(stream)) == 100)
    assert "lines" in Commands("journal").succeed("ls", f"{folder}/journal")


def test_the_doctor(folder: str) -> None:
    told = Commands("doctor", columns=200).run(folder).output
    assert folder in told
    assert "exclusive create" in told
    assert "MISSING" not in told
