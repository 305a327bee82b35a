"""A power cut at every moment; see tests.journal.power_cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal.power_cut import check_power_cuts

pytestmark = pytest.mark.slow


def test_a_power_cut_loses_nothing_acked(tmp_path: Path) -> None:
    assert check_power_cuts(tmp_path) > 20
