"""A graph checkpoint's bytes, names, settings and reader; no Spark runs."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import CheckpointError, ConfigError
from penstock.storage import open_storage
from penstock.streaming.engine.graph import DStreamGraph
from penstock.streaming.recovery.checkpoint import Checkpoint
from penstock.streaming.recovery.codec import (
    MalformedCheckpointError,
    codec_from_conf,
    decode,
    encode,
)
from penstock.streaming.recovery.files import get_checkpoint_files
from penstock.streaming.recovery.location_storage import open_location
from penstock.streaming.recovery.pickling import PickledGraph, pickle_graph
from penstock.streaming.recovery.recreate import CheckpointReader
from penstock.streaming.recovery.saved_conf import restored_settings, settings_to_save


def checkpoint_at(time_ms: int, interval_ms: int = 1000) -> Checkpoint:
    return Checkpoint(
        master="local[2]",
        framework="word count",
        jars=("a.jar",),
        graph=pickle_graph(DStreamGraph(interval_ms)),
        checkpoint_time_ms=time_ms,
        checkpoint_dir="/ck",
        checkpoint_interval_ms=interval_ms,
        pending_times=(time_ms,),
        conf=(("spark.app.name", "word count"), ("spark.x", "ä\n")),
    )


def write(place: Path, name: str, content: bytes) -> Path:
    open_storage(place).private().create(name, content)
    return place / name


# -- bytes --


@pytest.mark.parametrize("codec", ["lz4", "snappy", "zstd"])
def test_a_checkpoint_comes_back_as_it_was(codec: str) -> None:
    written = checkpoint_at(5000, interval_ms=700)
    read = Checkpoint.deserialize(written.serialize(codec))
    assert read.graph.load().batch_interval_ms == 700
    assert replace(read, graph=written.graph) == written


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_damage_anywhere_is_found(codec: str) -> None:
    whole = encode(codec, b"payload " * 20)
    for cut in range(len(whole)):
        with pytest.raises(MalformedCheckpointError):
            decode(whole[:cut])
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0x01
        with pytest.raises(MalformedCheckpointError):
            decode(bytes(flipped))
    with pytest.raises(MalformedCheckpointError):
        decode(whole + b"\0")


@pytest.mark.parametrize(
    ("setting", "codec"),
    [
        ("lz4", "lz4"),
        ("ZSTD", "zstd"),
        ("org.apache.spark.io.SnappyCompressionCodec", "snappy"),
        (None, "lz4"),
    ],
)
def test_codec_by_sparks_setting(setting: str | None, codec: str) -> None:
    conf = {} if setting is None else {"spark.io.compression.codec": setting}
    assert codec_from_conf(conf) == codec


@pytest.mark.parametrize("setting", ["lzf", "org.apache.spark.io.LZFCompressionCodec", "gzip", ""])
def test_codecs_that_cannot_be_had(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.io\.compression\.codec"):
        codec_from_conf({"spark.io.compression.codec": setting})


def test_a_checkpoint_of_another_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = checkpoint_at(5000).serialize("lz4")
    monkeypatch.setattr("penstock.streaming.recovery.checkpoint._PYTHON", "3.99")
    with pytest.raises(CheckpointError, match=r"this is Python 3\.99.*recover='program'"):
        Checkpoint.deserialize(content)


@pytest.mark.parametrize("field", ["master", "framework", "checkpoint_time_ms"])
def test_a_checkpoint_that_lacks_a_field_is_not_valid(field: str) -> None:
    lacking: Any = replace(checkpoint_at(5000), **{field: None})
    with pytest.raises(MalformedCheckpointError, match=field):
        Checkpoint.deserialize(lacking.serialize("lz4"))


# -- names --


def test_files_are_found_by_time_with_backups_first(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    names = ["checkpoint-20", "checkpoint-9", "checkpoint-9.bk", "checkpoint-100.bk"]
    looks_alike = [
        "checkpoint-",
        "checkpoint-07",
        "checkpoint--5",
        "checkpoint-9.bk.tmp",
        "checkpoint-9x",
        "checkpoint-9.BK",
        "my-checkpoint-9",
        "checkpoint-9/0",
        "checkpoint-\u0669",
        "checkpoint-123456789-old/part",
    ]
    for name in [*names, *(n for n in looks_alike if n != "checkpoint-9/0"), "rdds/checkpoint-30"]:
        storage.create(name, b"")
    found = [file.name for file in get_checkpoint_files(storage)]
    assert found == ["checkpoint-9.bk", "checkpoint-9", "checkpoint-20", "checkpoint-100.bk"]


# -- settings --


def test_settings_come_back_without_addresses_and_what_belonged_to_one_run() -> None:
    saved = (
        ("spark.app.id", "local-1"),
        ("spark.app.name", "word count"),
        ("spark.app.startTime", "17"),
        ("spark.blockManager.port", "1"),
        ("spark.driver.bindAddress", "10.0.0.1"),
        ("spark.driver.host", "10.0.0.1"),
        ("spark.driver.memory", "2g"),
        ("spark.driver.port", "2"),
        ("spark.kubernetes.driver.pod.name", "driver-1"),
        ("spark.kubernetes.executor.podNamePrefix", "exec-1"),
        ("spark.master", "local[3]"),
        ("spark.ui.port", "3"),
        ("spark.yarn.app.id", "application_1"),
    )
    assert restored_settings(saved, {}) == {
        "spark.app.name": "word count",
        "spark.driver.memory": "2g",
        "spark.master": "local[3]",
    }


def test_what_spark_submit_gave_wins_where_it_belongs_to_the_run() -> None:
    saved = (("spark.master", "local[3]"), ("spark.driver.memory", "2g"))
    yarn_filter = "spark.org.apache.spark.deploy.yarn.AmIpFilter.param.PROXY_HOSTS"
    submitted = {
        "spark.master": "yarn",
        "spark.driver.host": "node7",
        "spark.driver.memory": "1g",
        "spark.yarn.app.id": "application_2",
        yarn_filter: "proxy",
    }
    assert restored_settings(saved, submitted) == {**submitted, "spark.driver.memory": "2g"}


def test_secrets_are_not_saved() -> None:
    pairs = [
        ("spark.app.name", "x"),
        ("spark.hadoop.fs.s3a.secret.key", "hush"),
        ("spark.hadoop.fs.s3a.access.key", "AKIA"),
        ("spark.executor.extraJavaOptions", "-Dtrust.password=hush"),
        ("spark.pin", "1234"),
    ]
    assert settings_to_save(pairs) == (("spark.app.name", "x"), ("spark.pin", "1234"))
    own = ("spark.redaction.regex", "pin")
    assert ("spark.pin", "1234") not in settings_to_save([*pairs, own])
    with pytest.raises(ConfigError, match=r"spark\.redaction\.regex"):
        settings_to_save([("spark.redaction.regex", "(")])


# -- reader --


def test_no_checkpoint(tmp_path: Path) -> None:
    assert CheckpointReader(open_storage(tmp_path)).read() is None


def test_the_newest_that_can_be_read_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.streaming.recovery")
    for time_ms in (900, 1000):
        write(tmp_path, f"checkpoint-{time_ms}", checkpoint_at(time_ms).serialize("lz4"))
    torn = checkpoint_at(2000).serialize("lz4")[:-7]
    write(tmp_path, "checkpoint-2000", torn)
    write(tmp_path, "checkpoint-2000.bk", b"")
    read = CheckpointReader(open_storage(tmp_path)).read()
    assert read is not None
    assert read.checkpoint_time_ms == 1000
    root = f"file://{tmp_path}"
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "INFO",
            "Checkpoint files found: "
            + ",".join(f"{root}/checkpoint-{name}" for name in ("2000", "2000.bk", "1000", "900")),
        ),
        ("INFO", f"Attempting to load checkpoint from file {root}/checkpoint-2000"),
        ("WARNING", f"Error reading checkpoint from file {root}/checkpoint-2000"),
        ("INFO", f"Attempting to load checkpoint from file {root}/checkpoint-2000.bk"),
        ("WARNING", f"Error reading checkpoint from file {root}/checkpoint-2000.bk"),
        ("INFO", f"Attempting to load checkpoint from file {root}/checkpoint-1000"),
        ("INFO", "Checkpoint for time 1000 ms validated"),
        ("INFO", f"Checkpoint successfully loaded from file {root}/checkpoint-1000"),
        ("INFO", "Checkpoint was generated at time 1000 ms"),
    ]


def test_a_backup_alone_is_read(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint-1000.bk", checkpoint_at(1000).serialize("lz4"))
    read = CheckpointReader(open_storage(tmp_path)).read()
    assert read is not None
    assert read.checkpoint_time_ms == 1000


def test_a_damaged_directory_raises(tmp_path: Path) -> None:
    write(tmp_path, "checkpoint-1000", b"torn")
    gone = replace(checkpoint_at(2000), graph=PickledGraph(b"cgone_module\nf\n."))
    write(tmp_path, "checkpoint-2000", gone.serialize("lz4"))
    reader = CheckpointReader(open_storage(tmp_path))
    with pytest.raises(CheckpointError) as caught:
        reader.read()
    assert caught.value.message == f"Failed to read checkpoint from directory file://{tmp_path}"
    assert isinstance(caught.value.cause, ModuleNotFoundError)  # that of the newest
    assert "recover='program'" in str(caught.value)
    assert reader.read(ignore_read_error=True) is None


# -- who may write --


def with_open_folder(folder: Path, file: Path) -> str:
    folder.chmod(0o775)
    return f"chmod -R go-w {folder}"


def with_open_file(folder: Path, file: Path) -> str:
    file.chmod(0o602)
    return f"chmod go-w {file}"


def with_foreign_file(folder: Path, file: Path) -> str:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(file, 12345, -1)
    return "belongs to another user (owner 12345"


@pytest.mark.parametrize("expose", [with_open_folder, with_open_file, with_foreign_file])
def test_what_others_could_have_written_is_not_unpickled(
    tmp_path: Path, expose: Callable[[Path, Path], str]
) -> None:
    marker = tmp_path / "ran"
    folder = tmp_path / "ck"
    harmful = PickledGraph(f"cos\nsystem\n(S'touch {marker}'\ntR.".encode())
    content = replace(checkpoint_at(1000), graph=harmful).serialize("lz4")
    open_location(str(folder))
    file = write(folder, "checkpoint-1000", content)
    problem = expose(folder, file)
    with pytest.raises(ConfigError, match=re.escape(problem)):
        CheckpointReader(open_storage(folder)).read(ignore_read_error=True)
    assert not marker.exists()


@pytest.mark.parametrize("place", ["{}/new", "file://{}/deep/new"])
def test_a_new_location_is_private_under_any_umask(tmp_path: Path, place: str) -> None:
    before = os.umask(0o002)
    try:
        storage = open_location(place.format(tmp_path))
        storage.private().create("checkpoint-1", checkpoint_at(1).serialize("lz4"))
    finally:
        os.umask(before)
    assert CheckpointReader(storage).read() is not None


def test_a_location_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    open_location(str(tmp_path))
    assert tmp_path.stat().st_mode & 0o777 == 0o775
