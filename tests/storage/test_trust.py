"""Paths from which pickles are read: no other user may be able to put one there."""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.storage import open_storage
from penstock.storage.trust import check_trusted

STRANGER = 12345


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_what_is_this_users_alone_is_trusted(tmp_path: Path, form: str) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "file").touch(mode=0o644)
    check_trusted(form.format(tmp_path))
    check_trusted(form.format(tmp_path / "file"))
    check_trusted(form.format(tmp_path / "not there yet"))


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_may_write_is_refused_with_all_in_it(
    tmp_path: Path, mode: int
) -> None:
    (tmp_path / "file").touch(mode=0o644)
    tmp_path.chmod(mode)
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(ConfigError) as caught:
            check_trusted(f"file://{path}")
        assert f"{tmp_path} may be written by others (owner {os.geteuid()}, mode {mode:o})" in str(
            caught.value
        )
        assert f"chmod -R go-w {tmp_path}," in str(caught.value.hint)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    if owner == 0:
        os.chown(tmp_path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match=r"belongs to another user \(owner \d+, mode") as caught:
        check_trusted(str(tmp_path))
    assert f"chown -R {os.geteuid()} {tmp_path}," in str(caught.value.hint)


def test_object_stores_have_their_own_control() -> None:
    check_trusted("s3://bucket/path")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_location_that_another_user_put_in_its_place_is_refused(tmp_path: Path) -> None:
    """In a folder above that all may write: renamed away, and replaced by their own, or a link."""
    parent, mine, theirs = tmp_path / "parent", tmp_path / "parent" / "ck", tmp_path / "theirs"
    storage = open_storage(mine, private=True)
    storage.create("file", b"mine")
    parent.chmod(0o777)
    assert storage.read("file") == b"mine"
    theirs.mkdir()
    (theirs / "file").write_bytes(b"theirs")
    for each in (theirs, theirs / "file"):
        os.chown(each, STRANGER, -1)

    mine.rename(parent / "away")
    mine.symlink_to(theirs, target_is_directory=True)
    with pytest.raises(ConfigError, match=f"owner {STRANGER}"):
        storage.read("file")
    mine.unlink()
    mine.mkdir(0o700)
    (mine / "file").symlink_to(theirs / "file")
    with pytest.raises(ConfigError, match=f"owner {STRANGER}"):
        storage.read("file")


@pytest.fixture(params=[0, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of many containers, and of users with private groups."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_private_storage_is_its_users_alone_under_any_umask(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "state", private=True)
    for each in (storage, pickle.loads(pickle.dumps(storage)), storage.without_sync()):
        each.create(f"{id(each)}/folder/file", b"x")

    paths = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in paths}
    assert len(modes) == 10


def make_writable(file: Path) -> None:
    file.chmod(0o666)


def make_folder_writable(file: Path) -> None:
    file.parent.chmod(0o775)


@pytest.mark.parametrize("expose", [make_writable, make_folder_writable])
def test_a_private_storage_reads_no_file_that_others_could_have_put_there(
    tmp_path: Path, expose: Callable[[Path], None]
) -> None:
    storage = open_storage(tmp_path / "state", private=True)
    storage.create("folder/file", b"x")
    assert storage.read("folder/file") == b"x"

    expose(tmp_path / "state" / "folder" / "file")

    with pytest.raises(ConfigError, match="may be written by others"):
        open_storage(tmp_path / "state").private().read("folder/file")
    assert open_storage(tmp_path / "state").read("folder/file") == b"x"


def test_a_file_that_turned_writable_is_found_when_it_is_read(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "state", private=True)
    storage.create("file", b"x")
    storage.read("file")

    (tmp_path / "state" / "file").chmod(0o666)

    with pytest.raises(ConfigError, match=r"chmod go-w .*/file"):
        storage.read("file")
