"""Spark's executors: whether there are any, which ones live, and tasks on each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer


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
