"""Stores for a benchmark: Hadoop's cluster for tests, and an S3 server in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["hdfs_root", "s3_root"]

_ROOT = Path(__file__).parents[2]


@contextmanager
def hdfs_root() -> Iterator[str | None]:
    """Run HDFS; yield its URL, None where its libraries are not there (scripts/hdfs.sh)."""
    sys.path.append(str(_ROOT))
    from tests.hdfs.cluster import LIBRARIES, Cluster

    if LIBRARIES is None:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        Cluster(Path(folder), "mini.datanodes=3").running() as cluster,
    ):
        yield f"{cluster.url}/bench"


@contextmanager
def s3_root() -> Iterator[str]:
    """Run moto; yield the URL of a bucket."""
    sys.path.append(str(_ROOT))
    from tests.free_port import free_port

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    os.environ.update(
        AWS_ENDPOINT_URL=url,
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION="us-east-1",
    )
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as server:  # type: ignore[call-overload]
        try:
            _create_bucket(f"{url}/bucket")
            yield "s3://bucket/bench"
        finally:
            server.kill()


def _create_bucket(url: str) -> None:
    for _ in range(600):
        with suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30).close()
            return
        time.sleep(0.1)
    raise TimeoutError(f"{url} does not answer")
