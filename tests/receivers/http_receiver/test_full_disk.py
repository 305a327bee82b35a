"""Real disks that fill up, and turn read-only, under a receiver: 503, then on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.mounts import mount, small_disk
from tests.receivers.http_receiver.serving import Served, serving
from tests.waiting import eventually

pytestmark = pytest.mark.slow

BODY = b"x" * 1000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "4m") as place:
        yield place


def post(served: Served, key: int) -> int:
    return served.post(b"%d " % key + BODY, **{"idempotency-key": str(key)}).status_code


def outage(disk: Path, begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Post before, in and after an outage; what was refused is sent again with its key."""
    with serving(disk / "journal") as served:
        assert post(served, 0) == 200
        begin()
        try:
            refused = [key for key in range(1, 40) if post(served, key) != 200]
            assert refused
            assert eventually(lambda: served.client.get("/healthz").status_code == 503)
            assert served.post(BODY).status_code == 503
        finally:
            end()
        assert eventually(lambda: post(served, refused[0]) == 200)
        assert [post(served, key) for key in range(40)] == [200] * 40
        found = sorted(int(record.split()[0]) for record in served.records())
        assert found == list(range(40)), "each is stored once"


def test_a_disk_that_fills_up(disk: Path) -> None:
    filler = disk / "filler"

    def fill() -> None:
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(8 << 20))

    outage(disk, fill, filler.unlink)


def test_a_disk_that_turns_read_only(disk: Path) -> None:
    outage(
        disk,
        lambda: mount("-o", "remount,ro", str(disk)),
        lambda: mount("-o", "remount,rw", str(disk)),
    )
