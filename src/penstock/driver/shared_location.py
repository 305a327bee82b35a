"""Tests at start that every executor shares the checkpoint location with the driver."""

from __future__ import annotations

import logging

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from penstock.driver.executors import live_executors, rdd_on_each
from penstock.errors import ConfigError, StorageError
from penstock.root_cause import raised_by_worker
from penstock.storage import Storage
from penstock.storage.shared import Probe, check_probed

_log = logging.getLogger(__name__)
_CANNOT_LOAD = ("ModuleNotFoundError", "ImportError", "AttributeError")
"""Errors of a worker that unpickles a task without its code, or with other code."""


def check_shared(sc: SparkContext, storage: Storage) -> None:
    """Run a task on each executor that checks for the driver's files and creates one.

    Executors that are added later are not probed: their files are checked when they are published.

    Raises:
        ConfigError: an executor lacks penstock or a client of the storage, or has another version.
        UnsharedPathError: an executor does not share the location; the error names the hosts.
        StorageError: the driver cannot write there.
    """
    sc.parallelize([0], 1).count()  # waits for the first executor
    executors = live_executors(sc)
    probe = Probe.begin(storage)
    try:
        tasks = rdd_on_each(sc, None, executors).mapPartitionsWithIndex(probe)
        check_probed(storage, tasks.collect())
    except Py4JJavaError as error:
        raised = raised_by_worker(str(error))
        if not raised.startswith(_CANNOT_LOAD):
            raise
        raise ConfigError(
            f"executors' Python cannot load this driver's penstock: {raised}",
            operation="probe executors",
            hint="install the same penstock-spark with the same extras for their Python, which "
            "spark.pyspark.python names (docs/clusters.md)",
        ) from error
    finally:
        try:
            probe.end(len(executors))
        except StorageError:
            _log.warning("Files of the probe of %s cannot be removed", storage.url, exc_info=True)
