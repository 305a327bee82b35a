"""Every damaged byte of the state store is found before it is used, and its file is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import DamagedStateError, MissingStateError
from penstock.state import PartitionVersion, State, Version, VersionLog, read_version
from penstock.state import layers as layer_policy

from .helpers import OPERATOR, Runner

pytestmark = pytest.mark.slow


def keep(key: str, value: int, state: State[int]) -> tuple[str, int]:
    state.update(value)
    return (key, value)


class Store:
    """A partition whose newest version is made of a snapshot, a pack and deltas."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        runner = Runner(place)
        tip = runner.partition.load([("x", 0)], touched_ms=1)
        with monkeypatch.context() as patch:
            patch.setattr(layer_policy, "FAN_IN", 2)
            for time_ms in range(1, 5):
                tip = runner.batch(tip, [("k", time_ms)], time_ms, function=keep)
        self.tip = tip
        self.time_ms = 4
        self.log = VersionLog(runner.storage, OPERATOR)
        self.log.publish(Version(self.time_ms, (PartitionVersion(tip),)))
        self.folder = place / "state" / OPERATOR
        self.reads = 0
        self.deltas = [file.name for file in self.files_in_use() if file.suffix == ".delta"]

    def read(self) -> object:
        """Read all there is, on an executor that knows nothing yet."""
        self.reads += 1
        runner = Runner(self.place, executor=f"executor-{self.reads}")
        version = read_version(runner.storage, OPERATOR, self.time_ms)
        outputs = [runner.outputs(name, int(name[:20])) for name in self.deltas]
        return runner.state(version.tips[0]), outputs

    def files_in_use(self) -> list[Path]:
        """Return every file that the version is made of."""
        runner = Runner(self.place)
        used = {layer.name for layer in runner.partition.describe(str(self.tip)).layers}
        found = [self.folder / "00000" / name for name in (*sorted(used), str(self.tip))]
        return [*found, self.folder / "versions" / f"{self.time_ms:020d}.version"]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(tmp_path, monkeypatch)


def sampled(size: int, number: int) -> list[int]:
    """Return some positions of a file, and those of its trailer."""
    body = range(size - 20)
    chosen = random.Random(size).sample(body, min(number, len(body)))
    return sorted({*chosen, *range(size - 20, size)})


def truncated(content: bytes, at: int) -> bytes:
    return content[:at]


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]


@pytest.mark.parametrize("damage", [flipped, truncated])
def test_every_damaged_byte_is_found(store: Store, damage: Callable[[bytes, int], bytes]) -> None:
    whole = store.read()
    files = store.files_in_use()
    assert {file.suffix for file in files} == {".delta", ".pack", ".snapshot", ".version"}
    for file in files:
        content = file.read_bytes()
        for at in sampled(len(content), number=150):
            file.write_bytes(damage(content, at))
            with pytest.raises(DamagedStateError) as caught:
                store.read()
            assert caught.value.path == f"file://{file}"
            assert "restore the file" in str(caught.value)
        file.write_bytes(content)
        assert store.read() == whole


def test_every_missing_file_is_found(store: Store) -> None:
    for file in store.files_in_use():
        content = file.read_bytes()
        file.unlink()
        with pytest.raises(MissingStateError) as caught:
            store.read()
        assert caught.value.path == f"file://{file}"
        file.write_bytes(content)
