"""The fsspec protocols that can create a file exclusively, and how.

Fencing depends on exclusive create (penstock.storage.base, invariant 3), and fsspec's interface
does not guarantee it: the default ``pipe_file(mode="create")`` first checks and then writes, so two
callers can both succeed. A protocol is used only if its driver passes ``mode="create"`` to the
store as one atomic condition. This was verified in the drivers' sources and is tested at every
opening (an S3-compatible server may accept the condition and ignore it).

If the answer to a conditional write is lost, the write may have taken effect; the driver repeats it
and then finds its own file. This is also reported as AlreadyExistsError. A false refusal is safe,
because nothing was acknowledged; a comparison of the contents would let two writers of equal files
both succeed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol that can be used."""

    exclusive_by: str
    """The condition that makes its create exclusive."""

    spark_scheme: str
    """The scheme under which Spark reads the same files."""

    package: str | None = None
    """The package on PyPI that holds the driver, if it is not fsspec itself."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """What the driver is opened with."""


_S3 = Protocol(
    exclusive_by="If-None-Match: * on PutObject and CompleteMultipartUpload",
    spark_scheme="s3a",
    package="s3fs",
    options={"max_concurrency": 1},  # else it asks for a file's size before it reads it
)
_GCS = Protocol(
    exclusive_by="ifGenerationMatch=0 on simple and resumable uploads",
    spark_scheme="gs",
    package="gcsfs",
)
_AZURE = Protocol(
    exclusive_by="If-None-Match: * on Put Blob and Put Block List",
    spark_scheme="abfss",
    package="adlfs",
)

EXCLUSIVE = {
    "abfs": _AZURE,
    "abfss": _AZURE,
    "gcs": _GCS,
    "gs": _GCS,
    "memory": Protocol(
        exclusive_by="a lock in this process, which alone can access these files",
        spark_scheme="memory",
    ),
    "s3": _S3,
    "s3a": _S3,
}
"""Protocols with exclusive create, by scheme."""

_SHOWS_UNFINISHED = "its driver shows a file under its name while it is still being written"

REFUSED = {
    "az": "Spark has no such scheme; write abfss://container@account.dfs.core.windows.net/path",
    "ftp": _SHOWS_UNFINISHED,
    "sftp": _SHOWS_UNFINISHED,
    "smb": _SHOWS_UNFINISHED,
    "ssh": _SHOWS_UNFINISHED,
    "webhdfs": "WebHDFS does not sync what it writes; write hdfs://namenode:8020/path",
}
"""Why other common protocols cannot be used."""
