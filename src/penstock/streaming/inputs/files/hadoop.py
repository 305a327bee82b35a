"""Directories as Hadoop's file systems list them: local paths, hdfs, s3a, all that Spark knows.

Thin glue over the JVM. A call into it costs 0.1 ms and more, so the fields of all files of a
directory come in one call each: 100,000 files take 1.3 s, of which Hadoop's listing is 1.0 s.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark import SparkContext

from penstock.streaming.inputs.files.selection import ListedFile

_SEPARATOR = "\0"
_SPECIAL = re.compile(r"[,{}\[\]*?\\]")


def reading_pattern(path: str) -> str:
    r"""Return the pattern that matches this path only, for calls that take comma-joined globs.

    Hadoop splits at commas and braces before it looks for backslashes, so these cannot be escaped
    the usual way. It hands classes to Java's regular expressions, which know ``[\x2c]``.
    """
    return _SPECIAL.sub(lambda found: rf"[\x{ord(found[0]):02x}]", path)


def is_readable(path: str) -> bool:
    """Whether Spark's readers take a file of that name.

    They pass over names that begin with ``_`` or ``.``; ``._COPYING_`` ends the name of a file that
    ``hdfs dfs -put`` has not finished.
    """
    name = path.rpartition("/")[2]
    return not name.startswith(("_", ".")) and not name.endswith("._COPYING_")


class HadoopDirectories:
    """Lists directories with the file systems and credentials of a SparkContext."""

    def __init__(self, sc: SparkContext) -> None:
        self._conf: Any = sc._jsc.hadoopConfiguration()
        jvm: Any = sc._jvm
        self._jvm = jvm
        lang = jvm.java.lang
        path_type = lang.Class.forName("org.apache.hadoop.fs.Path")
        self._get_path = self._getter("getPath", path_type)
        self._get_modified = self._getter("getModificationTime", lang.Long.TYPE)
        self._get_length = self._getter("getLen", lang.Long.TYPE)
        self._get_is_file = self._getter("isFile", lang.Boolean.TYPE)

    def expand(self, pattern: str) -> list[str]:
        """Return the URLs of the directories that a path, or a glob, stands for.

        Raises:
            py4j.protocol.Py4JJavaError: the file system failed; so do all calls here.
        """
        path = self._jvm.org.apache.hadoop.fs.Path(pattern)
        found = path.getFileSystem(self._conf).globStatus(path)
        return [each.getPath().toString() for each in found or () if each.isDirectory()]

    def files_in(self, directory: str) -> list[ListedFile]:
        """Return the files right in a directory whose names are readable; none when it is gone."""
        path = self._jvm.org.apache.hadoop.fs.Path(directory)
        files = path.getFileSystem(self._conf)
        if not files.exists(path):
            return []
        iterator = files.listStatusIterator(path)
        found = self._jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(iterator)
        if found.isEmpty():
            return []
        return [
            ListedFile(url, int(modified_ms), int(length))
            for url, modified_ms, length, is_file in zip(
                self._column(found, self._get_path),
                self._column(found, self._get_modified),
                self._column(found, self._get_length),
                self._column(found, self._get_is_file),
                strict=True,
            )
            if is_file == "true" and is_readable(url)
        ]

    def _getter(self, method: str, kind: Any) -> Any:
        """Return a method of FileStatus as a function object that Java's collections take."""
        lang = self._jvm.java.lang
        status = lang.Class.forName("org.apache.hadoop.fs.FileStatus")
        signature = lang.invoke.MethodType.methodType(kind)
        handle = lang.invoke.MethodHandles.publicLookup().findVirtual(status, method, signature)
        operator = lang.Class.forName("java.util.function.UnaryOperator")
        return lang.invoke.MethodHandleProxies.asInterfaceInstance(operator, handle)

    def _column(self, statuses: Any, getter: Any) -> list[str]:
        """Return one field of all files, as text."""
        values = self._jvm.java.util.ArrayList(statuses)
        values.replaceAll(getter)
        text: str = self._jvm.org.apache.hadoop.util.StringUtils.join(_SEPARATOR, values)
        return text.split(_SEPARATOR)
