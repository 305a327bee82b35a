"""Tests at start that every executor shares the checkpoint location with the driver."""

from __future__ import annotations

import logging

from pyspark import SparkContext

from penstock.driver.executors import live_executors, rdd_on_each
from penstock.errors import StorageError
from penstock.storage import Storage
from penstock.storage.shared import Probe, check_probed

__all__ = ["check_shared"]

_log = logging.getLogger(__name__)


def check_shared(sc: SparkContext, storage: Storage) -> None:
    """Run a task on each executor that checks for the driver's files and creates one.

    Executors that are added later are not probed: their files are checked when they are published.

    Raises:
        UnsharedPathError: an executor does not share the location; the error names the hosts.
        StorageError: the driver cannot write there.
    """
    sc.parallelize([0], 1).count()  # waits for the first executor
    executors = live_executors(sc)
    probe = Probe.begin(storage)
    try:
        tasks = rdd_on_each(sc, None, executors).mapPartitionsWithIndex(probe)
        check_probed(storage, tasks.collect())
    finally:
        try:
            probe.end(len(executors))
        except StorageError:
            _log.warning("Files of the probe of %s cannot be removed", storage.url, exc_info=True)
