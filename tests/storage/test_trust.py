"""Paths from which pickles are read: no other user may be able to put one there."""

from __future__ import annotations

import grp
import os
import pickle
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.errors import ConfigError
from penstock.storage import open_storage
from penstock.storage.trust import check_trusted

STRANGER = 12345


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a path belong to another user than this one and root."""
    real = os.lstat

    def lstat(name: str) -> os.stat_result:
        found = real(name)
        if os.fspath(name) != str(path):
            return found
        return os.stat_result((*found[:4], STRANGER, *found[5:]))

    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "lstat", lstat)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_folder_of_ones_own_is_trusted(tmp_path: Path, form: str) -> None:
    tmp_path.chmod(0o755)
    check_trusted(form.format(tmp_path))
    check_trusted(form.format(tmp_path / "not there yet"))


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"written by other users.*chmod -R go-w {tmp_path}"):
        check_trusted(f"file://{tmp_path}")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    if owner == 0:
        os.chown(tmp_path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="belongs to user") as caught:
        check_trusted(str(tmp_path))
    assert f"chown -R {os.geteuid()} {tmp_path}," in str(caught.value.hint)


def test_object_stores_have_their_own_control() -> None:
    check_trusted("s3://bucket/path")


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A folder above the one that is checked, which is called ``ck``."""
    folder = tmp_path / "parent"
    (folder / "ck").mkdir(parents=True, mode=0o700)
    (folder / "ck").chmod(0o700)
    return folder


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_parent_in_which_others_can_replace_it_is_refused(parent: Path, mode: int) -> None:
    parent.chmod(mode)
    with pytest.raises(ConfigError, match=rf"lies under {parent}, which can be written by other"):
        check_trusted(str(parent / "ck"))


def test_a_parent_of_another_user_is_refused(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(parent, monkeypatch)
    with pytest.raises(
        ConfigError, match=rf"lies under {parent}, which belongs to user {STRANGER}"
    ) as caught:
        check_trusted(str(parent / "ck"))
    # Not all that is below it: other folders there may be other users'.
    assert f"chown {os.geteuid()} {parent}," in str(caught.value.hint)


@pytest.mark.parametrize("mode", [0o755, 0o1777, 0o1775], ids=["home", "/tmp", "sticky group"])
def test_usual_parents_are_trusted(parent: Path, mode: int) -> None:
    parent.chmod(mode)
    check_trusted(str(parent / "ck"))


@pytest.mark.parametrize(
    ("name", "members", "trusted"),
    [("me", [], True), ("me", ["me", "root"], True), ("me", ["other"], False), ("team", [], False)],
)
def test_a_parent_of_the_users_private_group_is_trusted(
    parent: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: list[str],
    trusted: bool,
) -> None:
    user = SimpleNamespace(pw_name="me", pw_gid=1000)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(pwd, "getpwall", lambda: [user])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: SimpleNamespace(gr_name=name, gr_mem=members))
    parent.chmod(0o775)
    if trusted:
        check_trusted(str(parent / "ck"))
        return
    with pytest.raises(ConfigError, match="lies under"):
        check_trusted(str(parent / "ck"))


def test_a_link_is_trusted_where_no_one_else_can_change_it(tmp_path: Path, parent: Path) -> None:
    (tmp_path / "link").symlink_to(parent, target_is_directory=True)
    (tmp_path / "relative").symlink_to("link/../parent/ck")
    check_trusted(str(tmp_path / "link" / "ck"))
    check_trusted(str(tmp_path / "relative"))


def test_a_link_that_others_can_change_is_refused(
    tmp_path: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "open"
    place.mkdir()
    link = place / "link"
    link.symlink_to(parent / "ck", target_is_directory=True)
    place.chmod(0o777)
    with pytest.raises(ConfigError, match=rf"lies under {place}"):
        check_trusted(str(link))
    place.chmod(0o1777)
    check_trusted(str(link))
    give_away(link, monkeypatch)
    with pytest.raises(ConfigError, match=rf"lies under {link}, which belongs to user"):
        check_trusted(str(link))


def test_the_target_of_a_link_is_checked_with_its_parents(tmp_path: Path, parent: Path) -> None:
    (tmp_path / "link").symlink_to(parent / "ck", target_is_directory=True)
    parent.chmod(0o777)
    with pytest.raises(ConfigError, match=rf"lies under {parent}"):
        check_trusted(str(tmp_path / "link"))


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

    with pytest.raises(ConfigError, match="can be written by other users"):
        open_storage(tmp_path / "state").private().read("folder/file")
    assert open_storage(tmp_path / "state").read("folder/file") == b"x"


def test_a_file_that_turned_writable_is_found_when_it_is_read(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "state", private=True)
    storage.create("file", b"x")
    storage.read("file")

    (tmp_path / "state" / "file").chmod(0o666)

    with pytest.raises(ConfigError, match=r"chmod go-w .*/file"):
        storage.read("file")
