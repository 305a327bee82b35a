"""Ends the Spark jobs of a group, without a word."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any

from pyspark import SparkContext

__all__ = ["cancel_jobs"]

_REASON = "as the streaming program stops"


def cancel_jobs(sc: SparkContext, group: str) -> None:
    """Cancel the jobs of a group that run now; to be repeated while a thread may submit others.

    ``SparkContext.cancelJobGroup`` warns about a group that has no job, which is the usual case.
    """
    if sc._jsc is None:  # the program stopped its SparkContext first
        return
    _hide_killed_tasks(sc._gateway)
    tracker = sc.statusTracker()
    running = set(tracker.getActiveJobsIds())
    for job_id in running.intersection(tracker.getJobIdsForGroup(group)):
        sc._jsc.sc().cancelJob(job_id, _REASON)


@cache
def _hide_killed_tasks(gateway: Any) -> None:
    """Leave out of Spark's log the warnings of tasks that were killed for our reason; no others."""
    with suppress(Exception):  # Spark's log goes elsewhere than to Log4j
        log4j = gateway.jvm.org.apache.logging.log4j
        logger = log4j.LogManager.getLogger("org.apache.spark.scheduler.TaskSetManager")
        result = log4j.core.Filter.Result
        logger.get().addFilter(
            log4j.core.filter.RegexFilter.createFilter(
                f".*TaskKilled.*{re.escape(_REASON)}.*", None, False, result.DENY, result.NEUTRAL
            )
        )
