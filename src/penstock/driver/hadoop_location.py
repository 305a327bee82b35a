"""What a path without a scheme means to a program: what Hadoop says, as for Spark's own paths."""

from __future__ import annotations

import logging
import os
from typing import Any

from pyspark import SparkContext

from penstock.storage.urls import HDFS_SCHEMES, split_url

_log = logging.getLogger(__name__)


def hadoop_location(path: str) -> str:
    """Return the URL of a path without a scheme, if there is a JVM whose default is not local."""
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
