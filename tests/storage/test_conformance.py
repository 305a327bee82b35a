"""Every storage of penstock keeps the promises of a CheckpointFileManager, and a program's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.storage import Storage
from tests.storage.file_manager_suite import CheckpointFileManagerSuite
from tests.storage.sqlite_files import SqliteFiles


class TestStorages(CheckpointFileManagerSuite):
    """Those of the fixture in conftest."""

    @pytest.fixture(autouse=True)
    def choose_rounds(self, storage: Storage) -> None:
        self.race_rounds = 5 if storage.url.startswith("s3") else 300


class TestOwnFileManager(CheckpointFileManagerSuite):
    """A class that a program brings along."""

    race_rounds = 10

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return SqliteFiles(f"sqlite://{tmp_path}/files.db/root")


def test_names_of_temporary_files_cannot_be_created(storage: Storage) -> None:
    with pytest.raises(ConfigError, match="temporary"):
        storage.create("folder/.block.0123456789abcdef.tmp", b"x")
