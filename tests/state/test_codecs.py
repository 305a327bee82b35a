"""Files of state are compressed as the setting says; those of any setting and release are read."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DamagedStateError
from penstock.state import Partition
from penstock.state.state_file import BLOCK_BYTES, CODECS, encode_file, open_file
from penstock.storage import Storage, open_storage

from .helpers import OPERATOR, Model, Runner


class Packed(Runner):
    """Its files are compressed by a codec."""

    def __init__(self, place: Path, codec: str, run: str = "00000001") -> None:
        super().__init__(place, run)
        local = str(place / "executor" / run / OPERATOR)
        self.partition = Partition(self.storage, OPERATOR, 0, run, local, codec)


def batches(runner: Runner, model: Model, tip: str | None, numbers: range) -> str | None:
    """Run batches with many keys: they leave deltas, packs and snapshots."""
    for number in numbers:
        records = [(f"key {n % 5000:020d}", 1) for n in range(number * 400, number * 400 + 1200)]
        model.update(records, number, None)
        tip = runner.batch(tip, records, number)
    return tip


def codecs_of(runner: Runner) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {}
    for name in runner.files():
        kind = name.rpartition(".")[2]
        file = open_file(runner.storage, f"{OPERATOR}/00000/{name}", kind)
        found.setdefault(kind, set()).add(file.facts.get("codec"))
    return found


def as_earlier_releases(storage: Storage) -> None:
    """Write each file again in format 1: its sections as they are, and no codec."""
    for path in storage.find(f"{OPERATOR}/00000"):
        kind = path.rpartition(".")[2]
        file = open_file(storage, path, kind)
        content, sections = b"", {}
        for name in file.facts["sections"]:
            section = file.section(name)
            sections[name] = [len(content), len(section), zlib.crc32(section)]
            content += section
        left_out = ("blocks", "codec", "format", "sections")
        facts = {k: v for k, v in file.facts.items() if k not in left_out}
        footer = json.dumps({"format": 1, "sections": sections, **facts}).encode()
        size = struct.pack("<I", len(footer))
        end = size + struct.pack("<I8s", zlib.crc32(footer + size), b"PSTSTATE")
        storage.create(path, content + footer + end, overwrite=True)


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_files_are_compressed_as_the_setting_says(tmp_path: Path, codec: str) -> None:
    model, runner = Model(), Packed(tmp_path, codec)
    tip = batches(runner, model, None, range(1, 80))
    assert runner.state(tip) == model.sums
    assert codecs_of(runner) == {kind: {codec} for kind in ("delta", "pack", "snapshot")}
    files = runner.files()
    assert Packed(tmp_path, codec, "00000002").state(tip) == model.sums  # a new local copy
    stored = sum((tmp_path / "state" / OPERATOR / "00000" / name).stat().st_size for name in files)
    as_earlier_releases(runner.storage)
    plain = sum((tmp_path / "state" / OPERATOR / "00000" / name).stat().st_size for name in files)
    assert stored < plain / 2


def test_state_of_earlier_releases_and_of_other_settings_goes_on(tmp_path: Path) -> None:
    model, runner = Model(), Packed(tmp_path, "lz4")
    tip = batches(runner, model, None, range(1, 30))
    as_earlier_releases(runner.storage)
    for run, codec in enumerate(CODECS, start=2):
        runner = Packed(tmp_path, codec, f"{run:08d}")
        tip = batches(runner, model, tip, range(run * 100, run * 100 + 20))
        assert runner.state(tip) == model.sums
    assert codecs_of(runner)["delta"] == {None, *CODECS}


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_sections_of_any_size(tmp_path: Path, codec: str, size: int) -> None:
    storage = open_storage(tmp_path)
    data = bytes(range(251)) * (size // 251 + 1)
    sections = {"a": data[:size], "b": b"", "c": b"end"}
    storage.create("x", encode_file("delta", {}, sections, codec))
    file = open_file(storage, "x", "delta")
    assert {name: file.section(name) for name in sections} == sections
    assert file.size("a") == size


def test_what_was_altered_is_not_unpacked_into_something_else(tmp_path: Path, codec: str) -> None:
    storage = open_storage(tmp_path)
    content = encode_file("delta", {}, {"changes": b"abc" * 1000}, codec)
    (length,) = struct.unpack("<I", content[-16:-12])
    for at in range(len(content) - 16 - length):
        altered = bytes([*content[:at], content[at] ^ 1, *content[at + 1 :]])
        storage.create("x", altered, overwrite=True)
        with pytest.raises(DamagedStateError):
            open_file(storage, "x", "delta").section("changes")
