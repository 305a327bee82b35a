"""A program with journal, logs and graph checkpoints on HDFS: each line once, through kills."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.checkpoint.tools import inspect, validate
from penstock.status import read_location
from penstock.storage import open_storage
from tests.faults.test_kills import Site

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("hdfs")]


def site_at(checkpoint: str, root: Path) -> Site:
    site = Site(root)
    site.checkpoint = cast("Any", checkpoint)
    return site


def test_each_line_is_written_once(folder: str, tmp_path: Path) -> None:
    site = site_at(f"{folder}/program", tmp_path)
    with site.writer.running(lines_a_burst=20, pause_s=0.05):
        with site.driver("local[2]", "after-plan-2") as driver:
            assert driver.process.wait() == -signal.SIGKILL, driver.log()
        with site.driver() as driver:
            driver.wait_batches(3)
            driver.kill()
    with site.driver() as driver:
        verdict = site.settle(driver)
    assert verdict.ok, verdict
    assert any("checkpoint-" in name for name in open_storage(site.checkpoint).names())
    assert {each.severity for each in validate(site.checkpoint).findings} <= {"note"}
    assert inspect(site.checkpoint).batches
    status = read_location(str(site.checkpoint))
    assert status.committed >= 3
    assert not status.problems
