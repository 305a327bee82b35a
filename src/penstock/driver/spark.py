"""What the driver asks of Spark: executors, task slots, jobs, and what a path alone means."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

from penstock.errors import ConfigError
from penstock.storage.urls import HDFS_SCHEMES, split_url

_log = logging.getLogger(__name__)
_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_PATIENCE_S = 10.0
"""How long a start waits for more executors after the first one."""
_POLL_S = 0.1
_REASON = "as the streaming program stops"


# -- executors --


def has_executors(sc: SparkContext) -> bool:
    """Whether tasks run in executors, which may be on other hosts than the driver."""
    master = str(sc.master)
    return not (master == "local" or master.startswith("local["))


def live_executors(sc: SparkContext) -> list[str]:
    """Return the executors that can run tasks, as Spark names places; none in local mode."""
    assert sc._jsc is not None
    spark = sc._jsc.sc()
    found = spark.statusStore().executorList(True)
    executors = (found.apply(place) for place in range(found.size()))
    hosts = {e.id(): e.hostPort().rpartition(":")[0] for e in executors if e.id() != "driver"}
    # One that has yet to register has no address; one that has yet to offer its slots counts as
    # dead, and what prefers it is sent elsewhere.
    is_alive = spark.taskScheduler().isExecutorAlive
    return [f"executor_{hosts[e]}_{e}" for e in sorted(hosts) if hosts[e] and is_alive(e)]


def rdd_on_each(sc: SparkContext, value: Any, executors: Sequence[str]) -> RDD[Any]:
    """Return an RDD of that value, once for each executor, in a task that prefers it."""
    # Python's own parallelize takes no preferred locations; Spark's makeRDD does.
    assert sc._jsc is not None
    assert sc._jvm is not None
    jvm = sc._jvm
    serializer = CPickleSerializer()
    pickled = bytearray(serializer.dumps(value))  # type: ignore[no-untyped-call]
    elements = [jvm.scala.Tuple2(pickled, jvm.PythonUtils.toSeq([each])) for each in executors]
    class_tag = sc.parallelize([value], 1)._jrdd.classTag()
    placed = sc._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(elements), class_tag)
    return RDD(placed.toJavaRDD(), sc, serializer)


class ReceiverPlacement:
    """Spreads receivers over the executors, each to the one with the fewest. Thread-safe.

    Spark sends a task of its own to any free slot, so several receivers may come to share an
    executor, its cores and its network, while others have none. So their tasks say which executor
    they prefer. It is a preference: when that one has no slot for 3 s (``spark.locality.wait``), or
    is gone, Spark takes another.

    Source: ``org.apache.spark.streaming.scheduler.ReceiverSchedulingPolicy``.

    Args:
        live: returns the live executors.
        expected: how many are worth waiting for when the program starts.
    """

    def __init__(self, live: Callable[[], Sequence[str]], expected: int) -> None:
        self._live = live
        self._expected = expected
        self._lock = threading.Lock()
        self._chosen: dict[str, str] = {}
        self._patient_until_s = math.inf

    def choose(self, receiver: str, stopping: threading.Event) -> str | None:
        """Return the executor for a receiver, None when there are none to choose from.

        Waits for executors at the program's start, until ``stopping``; for the first one however
        long it takes, as no task can run before. A receiver that is started again is placed
        again: its executor may be gone.
        """
        live = self._wait_for_executors(stopping)
        with self._lock:
            self._chosen.pop(receiver, None)
            if not live:
                return None
            held = Counter(self._chosen.values())
            chosen = self._chosen[receiver] = min(live, key=lambda executor: held[executor])
            return chosen

    def _wait_for_executors(self, stopping: threading.Event) -> Sequence[str]:
        live = self._live()
        while len(live) < self._expected and time.monotonic() < self._patient_until_s:
            if live:
                self._patient_until_s = min(self._patient_until_s, time.monotonic() + _PATIENCE_S)
            if stopping.wait(_POLL_S):
                break
            live = self._live()
        return live


def placed_rdd(sc: SparkContext, value: Any, executor: str | None) -> RDD[Any]:
    """Return an RDD of one value, whose one task prefers that executor."""
    return sc.parallelize([value], 1) if executor is None else rdd_on_each(sc, value, [executor])


# -- task slots, as the master and the settings say --


def task_slots(master: str, conf: Mapping[str, str], cores: int) -> int | None:
    """Return how many tasks can run at once under a master, None when only the cluster knows.

    ``cores`` are those of this machine, which ``local[*]`` takes.
    """
    if master == "local":
        return 1
    if re.fullmatch(r"local\[\*(?:,\s*\d+)?\]", master):
        return cores
    if match := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master):
        return int(match[1])
    executors = executor_count(master, conf)
    if executors is None:
        return None
    if match := _CLUSTER.fullmatch(master):
        return executors * int(match[2])
    return executors * int(conf.get("spark.executor.cores", "1"))


def executor_count(master: str, conf: Mapping[str, str]) -> int | None:
    """Return how many executors a program has, None when only the cluster knows."""
    if match := _CLUSTER.fullmatch(master):
        return int(match[1])
    dynamic = conf.get("spark.dynamicAllocation.enabled") == "true"
    if "spark.executor.instances" in conf and not dynamic:
        return int(conf["spark.executor.instances"])
    return None


def check_slots(receivers: int, slots: int | None) -> None:
    """Check that receivers leave a task slot for the batches.

    Raises:
        ConfigError: they would take all of them, and no batch could ever run.
    """
    if slots is not None and receivers >= max(slots, 1) and receivers > 0:
        raise ConfigError(
            f"{receivers} receiver(s) would take all {slots} task slot(s): no batch could run",
            operation="start receivers",
            ids={"receivers": receivers, "slots": slots},
            hint=f"give Spark more cores, e.g. master local[{receivers + 1}] or local[*]",
        )


# -- jobs --


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


# -- paths --


def hadoop_location(path: str) -> str:
    """Return the URL of a path without a scheme, as for Spark's own paths: what Hadoop says.

    Unless there is no JVM, or its default is the local file system.
    """
    scheme, rest = split_url(str(path))
    has_authority = rest.startswith("//") and not rest.startswith("///")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    if jvm is None or not path or has_authority or scheme not in (None, *HDFS_SCHEMES):
        return path
    sc: Any = SparkContext._active_spark_context
    spark = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
    conf = spark.conf() if sc is None else sc._jsc.hadoopConfiguration()
    hadoop = jvm.org.apache.hadoop
    default = hadoop.fs.FileSystem.getDefaultUri(conf)
    if default.getScheme() == "file":
        return path
    user = hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    home = hadoop.fs.Path(f"{conf.get('dfs.user.home.dir.prefix', '/user')}/{user}")
    url = str(hadoop.fs.Path(str(path)).makeQualified(default, home).toString())
    _log.info("Location %s is %s (fs.defaultFS is %s)", path, url, default.toString())
    return url
