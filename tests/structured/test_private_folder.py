"""The folder by which a driver and its readers talk: in /tmp, where others may take its place."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.structured.private_folder import PrivateFolder
from penstock.structured.rate_files import Allowed, RateFiles
from penstock.structured.session import QueryFacts, Session, tell_query
from tests.waiting import WAIT_S

READS = ("/j", "clicks", "count")
FACTS = QueryFacts("id-A", "/data/count", 100)
PLANTED = {"id": "id-B", "location": "/x", "batches_to_retain": 0}


def made_by_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(0o755)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)


def open_to_others(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_link(folder: Path, _: pytest.MonkeyPatch) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(0o700)
    folder.symlink_to(elsewhere)


def test_readers_of_queries_with_the_same_options_are_told_apart(tmp_path: Path) -> None:
    """Two queries over one DataFrame, started one after the other: the first one's ask later."""
    folder, other = str(tmp_path / "session"), replace(FACTS, id="id-C")
    tell_query(folder, READS, FACTS)
    session = Session(folder, 2, 100)
    with ThreadPoolExecutor() as threads:
        telling = threads.submit(tell_query, folder, READS, other, WAIT_S)
        time.sleep(0.2)
        assert session.query_of(*READS) == FACTS
        telling.result(WAIT_S)
    assert session.query_of(*READS) == other
    tell_query(folder, READS, FACTS, WAIT_S)
    tell_query(folder, READS, FACTS, WAIT_S)  # the same one again, and its readers never asked
    tell_query(folder, READS, other, 0.1)
    assert session.query_of(*READS) == other


@pytest.mark.parametrize("take", [made_by_another_user, open_to_others, a_link])
def test_a_folder_that_another_one_created_in_its_place_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    take: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    folder = tmp_path / "session"
    tell_query(str(folder), READS, FACTS)
    (name,) = (path.name for path in folder.iterdir())
    session, rates = Session(str(folder), 2, 100), RateFiles(str(folder))
    assert session.query_of(*READS) == FACTS
    shutil.rmtree(folder)
    take(folder, monkeypatch)
    (folder / name).write_text(json.dumps(PLANTED))
    uses: tuple[Callable[[], object], ...] = (
        lambda: session.query_of(*READS),
        lambda: tell_query(str(folder), READS, FACTS),
        lambda: rates.allowed("r1", {}),
        lambda: rates.allow("r1", {}, Allowed(1, 1, "")),
        lambda: rates.forget("r1"),
    )
    for use in uses:
        with pytest.raises(ConfigError, match="another program has created that"):
            use()
    assert json.loads((folder / name).read_text()) == PLANTED


def test_a_folder_that_was_removed_is_created_again(tmp_path: Path) -> None:
    folder = PrivateFolder(str(tmp_path / "session"))
    folder.write("a", {"n": 1})
    assert folder.read("a") == {"n": 1}
    shutil.rmtree(tmp_path / "session")
    assert folder.read("a") is None
    folder.remove("a")
    folder.write("a", {"n": 2})
    assert folder.read("a") == {"n": 2}
    assert os.listdir(tmp_path / "session") == ["a"]
