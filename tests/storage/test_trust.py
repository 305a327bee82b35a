"""Folders from which pickles are read: nobody else may have written there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.storage.trust import check_trusted


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_folder_of_ones_own_is_trusted(tmp_path: Path, form: str) -> None:
    tmp_path.chmod(0o755)
    check_trusted(form.format(tmp_path))
    check_trusted(form.format(tmp_path / "not there yet"))


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"written by other users.*chmod go-w {tmp_path}"):
        check_trusted(f"file://{tmp_path}")


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    if owner == 0:
        os.chown(tmp_path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="belongs to user"):
        check_trusted(str(tmp_path))


def test_object_stores_have_their_own_control() -> None:
    check_trusted("s3://bucket/path")
