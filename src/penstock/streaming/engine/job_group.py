"""Ends the Spark jobs of a group, without a word where there are none."""

from __future__ import annotations

from pyspark import SparkContext

__all__ = ["cancel_jobs"]


def cancel_jobs(sc: SparkContext, group: str) -> None:
    """Cancel the jobs of a group that run now; to be repeated while a thread may submit others.

    ``SparkContext.cancelJobGroup`` warns about a group that has no job, which is the usual case.
    """
    if sc._jsc is None:  # the program stopped its SparkContext first
        return
    tracker = sc.statusTracker()
    running = set(tracker.getActiveJobsIds())
    for job_id in running.intersection(tracker.getJobIdsForGroup(group)):
        sc._jsc.sc().cancelJob(job_id)
