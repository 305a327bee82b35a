"""Makes the JVMs of the tests start fast: many tests start some, and then mostly wait for them.

Spark loads some ten thousand classes before its first job. They come, parsed and verified, out of
an archive (class data sharing), which is made once for a Java and a pyspark and kept by pytest's
cache. And a JVM that lives for seconds never earns back what its optimizing compiler costs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Other JVMs than HotSpot do without what they do not know. One that cannot use the archive (as
# Spark's launcher: its class path differs) would say so on standard output, which scripts read.
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -Xlog:disable -Xlog:all=error:stderr"
    " -XX:-UsePerfData"  # its file in /tmp would outlive a kill
)
OPTIMIZED = "-XX:TieredStopAtLevel=4"
"""What has a JVM of minutes use the optimizing compiler after all."""
# A folder of defaults (SPARK_CONF_DIR) would be part of the class path, and archives allow none.
_SPARK = (
    " -Dspark.python.daemon.module=tests.worker_daemon"
    # Over TCP every task of a worker waits 40 ms: JVMs leave Nagle's algorithm on, and what they
    # send last waits until the worker acknowledges what came before, which it delays.
    " -Dspark.python.unix.domain.socket.enabled=true"
)
_ARCHIVE_WITHIN_S = 300.0
"""Some seconds on an idle machine; to give up costs every later run as much again."""


def java_options(temporary: str) -> str:
    """Return the options of every JVM that this run starts; its files go to ``temporary``."""
    # The path of a socket has to be short, and programs may have temporary folders of their own.
    sockets = f"-Dspark.python.unix.domain.socket.dir={temporary}"
    return f"-Djava.io.tmpdir={temporary} {_OPTIONS}{_SPARK} {sockets}"


def use_archive(folder: Path) -> None:
    """Let every JVM that starts from now on use the archive in ``folder``; make it if need be.

    Without one the tests are slower and prove the same, so it is not a failure if none can be made.
    Of several workers one makes it, while the others wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{_fingerprint()}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = archive.exists() or _make(archive)
    if made:
        os.environ["JAVA_TOOL_OPTIONS"] += f' "-XX:SharedArchiveFile={archive}"'


def stop_jvm(within_s: float = 60.0) -> None:
    """End this process's JVM now, so that its shutdown hooks run and it is not left behind.

    Raises:
        subprocess.TimeoutExpired: it did not end in time, and was killed.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its standard input does
    try:
        gateway.proc.wait(within_s)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()
        raise


def _make(archive: Path) -> bool:
    """Make the archive; the JVM writes it when it ends, with the classes that it has loaded."""
    for outdated in archive.parent.glob("*.jsa"):
        outdated.unlink()
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        unfinished = Path(folder, archive.name)
        made = subprocess.run(
            [sys.executable, "-m", __name__, str(unfinished)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if made.returncode == 0 and unfinished.exists():
            unfinished.replace(archive)
    return archive.exists()


def _fingerprint() -> str:
    """Name the Java that Spark starts, and Spark's jars: an archive is of use to these alone.

    A JVM leaves an archive aside whose jars have other times, as those of an environment made anew.
    """
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else "java"
    version = subprocess.run([java, "-version"], capture_output=True, check=False).stderr
    # The version stands behind what Java says of its options, where this run's folder is.
    jars = sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    parts = (version[version.find(b" version ") :], *(f"{j} {j.stat().st_mtime_ns}" for j in jars))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _load_classes(archive: str) -> None:
    """Do once what the tests' programs do, in a JVM that writes the archive when it ends."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"',
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    conf = SparkConf().setMaster("local[2]").setAppName("archive").setAll(settings.items())
    context = SparkContext(conf=conf)
    context.parallelize([(1, 1)], 2).reduceByKey(max).collect()
    spark = SparkSession(context)
    spark.range(2).selectExpr("id", "cast(id as string) as text").write.parquet("written")
    spark.read.parquet("written").groupBy("text").count().collect()
    spark.range(2).mapInArrow(lambda batches: batches, "id long").collect()
    query = (
        spark.readStream.format("rate")
        .load()
        .writeStream.foreachBatch(lambda batch, batch_id: batch.count())
        .option("checkpointLocation", "query")
        .start()
    )
    while not query.recentProgress:
        time.sleep(0.1)
    query.stop()
    context.stop()
    stop_jvm(_ARCHIVE_WITHIN_S)


if __name__ == "__main__":
    _load_classes(*sys.argv[1:])
