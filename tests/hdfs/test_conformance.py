"""The storage contract on a real HDFS."""

from __future__ import annotations

import pytest

from penstock.storage import Storage, open_storage
from tests.storage.file_manager_suite import CheckpointFileManagerSuite

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hdfs")]


class TestHdfs(CheckpointFileManagerSuite):
    race_rounds = 5

    @pytest.fixture
    def storage(self, folder: str) -> Storage:
        return open_storage(folder)
