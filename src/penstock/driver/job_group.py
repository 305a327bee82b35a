"""Ends the Spark jobs of a group, silently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from pyspark import SparkContext

_REASON = "as the streaming program stops"


def begin_jobs(sc: SparkContext, group: str, description: str) -> None:
    """Have the jobs of this thread belong to a group.

    They have it as a tag, too: what runs in the thread may set a job group of its own.
    """
    sc.setJobGroup(group, description, interruptOnCancel=True)
    sc.addJobTag(group)


def cancel_jobs(sc: SparkContext, group: str) -> set[int]:
    """Cancel the jobs of a group that run now; to be repeated while a thread may submit others.

    Returns their ids. ``SparkContext.cancelJobGroup`` warns about a group that has no job, which is
    the usual case.
    """
    if sc._jsc is None:  # the program stopped its SparkContext first
        return set()
    _hide_killed_tasks(sc._gateway)
    tagged = sc._jsc.sc().statusTracker().getJobIdsForTag(group)
    jobs = set(sc.statusTracker().getActiveJobsIds()).intersection(tagged)
    for job_id in jobs:
        sc._jsc.sc().cancelJob(job_id, _REASON)
    return jobs


def any_task_runs(sc: SparkContext, job_ids: Iterable[int]) -> bool:
    """Whether a task of these jobs still runs: a cancelled job ends before its tasks do."""
    if sc._jsc is None:
        return False
    tracker = sc.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, job_ids))
    stages = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
    return any(stage.numActiveTasks for stage in stages)


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
