"""Idempotency-Key over real sockets: stored once, whatever happened to the first answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.receivers import HttpReceiver
from penstock.receivers.http import key_window
from penstock.storage import open_storage
from tests.receivers.http_receiver.serving import JSON, TEXT, Served, serving
from tests.storage.faulty_storage import FaultyStorage
from tests.waiting import eventually


def post(served: Served, content: bytes, key: str, **headers: str) -> tuple[int, object]:
    response = served.post(content, headers or TEXT, **{"idempotency-key": key})
    return response.status_code, response.json()


def test_a_request_that_comes_again_gets_the_same_answer_and_is_stored_once(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served:
        first = post(served, b"a\nb", "one")
        assert served.post(b"between").status_code == 200
        assert post(served, b"a\nb", "one") == first == post(served, b"a\nb", "one")
        assert first == (200, {"writer": "r0-00000000", "start": 0, "end": 2})
        assert served.records() == ["a", "b", "between"]


def test_a_key_that_is_used_for_something_else_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert post(served, b"1", "one")[0] == 200
        assert post(served, b"2", "one")[0] == 422
        assert post(served, b"1", "one", **JSON)[0] == 422
        assert served.records() == ["1"]


def test_what_was_refused_can_be_sent_again_with_its_key(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert post(served, b"{", "one", **JSON)[0] == 400
        assert post(served, b"{}", "one", **JSON)[0] == 200
        assert served.records() == ["{}"]


def test_keys_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert post(served, b"1", "x" * 256)[0] == 400
        assert post(served, b"1", "")[0] == 400
        assert post(served, b"1", "x" * 255)[0] == 200


def test_requests_of_one_key_at_once_are_stored_once(tmp_path: Path) -> None:
    large = b"large\n" * 10_000  # parsed by another thread
    with serving(tmp_path) as served, ThreadPoolExecutor(16) as clients:
        for key, content in (("s", b"small"), ("l", large)):
            found = list(clients.map(lambda c: post(served, *c), [(content, key)] * 16))
            assert found == [found[0]] * 16
            assert found[0][0] == 200
        assert len(served.records()) == 1 + 10_000


def test_keys_outlive_a_stop_and_a_start(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        first = post(served, b"a", "one")
        assert served.post(b"no key").status_code == 200
    with serving(tmp_path) as served:
        assert post(served, b"a", "one") == first
        assert post(served, b"b", "one")[0] == 422
        second = post(served, b"a", "two")
        assert second == (200, {"writer": "r0-00000001", "start": 0, "end": 1})
    with serving(tmp_path) as served:
        assert [post(served, b"a", "one"), post(served, b"a", "two")] == [first, second]
        assert served.records() == ["a", "no key", "a"]


def test_keys_are_forgotten_after_their_window(tmp_path: Path) -> None:
    receiver = HttpReceiver(port=0, idempotency_window_ms=100)
    with serving(tmp_path, receiver) as served:
        assert post(served, b"a", "one")[0] == 200
        assert eventually(lambda: post(served, b"b", "one")[0] == 200)
        assert served.records() == ["a", "b"]


def test_more_keys_than_a_position_holds_are_kept_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_window, "FILE_KEYS", 16)
    count = 2 * 16 + 10
    with serving(tmp_path) as served:
        first = [post(served, b"%d" % n, f"k{n}") for n in range(count)]
    with serving(tmp_path) as served:
        assert [post(served, b"%d" % n, f"k{n}") for n in range(count)] == first
        assert len(served.records()) == count
        folder = tmp_path / "clicks" / "receivers" / "r0"
        assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("after", [False, True], ids=["not durable", "durable, and unacked"])
def test_a_key_whose_publish_failed_is_stored_once_by_the_next_writer(
    tmp_path: Path, after: bool
) -> None:
    storage = FaultyStorage(open_storage(tmp_path))
    with serving(storage) as served:
        before = post(served, b"before", "k0")
        storage.fail("create", path="*.parquet", after=after)
        assert post(served, b"a", "k1")[0] == 503
        assert eventually(lambda: post(served, b"a", "k1")[0] == 200)
        assert post(served, b"before", "k0") == before
        assert served.records() == ["before", "a"]


@pytest.mark.parametrize("after", [False, True])
def test_a_file_of_keys_that_fails_takes_no_key_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(key_window, "FILE_KEYS", 16)
    storage = FaultyStorage(open_storage(tmp_path))
    count = 16 + 5
    with serving(storage) as served:
        storage.fail("create", path="*/receivers/*", after=after)
        refused = []
        for n in range(count):
            if post(served, b"%d" % n, f"k{n}")[0] != 200:
                refused.append(n)
                assert eventually(lambda n=n: post(served, b"%d" % n, f"k{n}")[0] == 200)
        assert len(refused) == 1
        assert sorted(map(int, served.records())) == list(range(count))
        for n in range(count):
            assert post(served, b"%d" % n, f"k{n}")[0] == 200
        assert len(served.records()) == count
