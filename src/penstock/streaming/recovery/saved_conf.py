"""The Spark settings that a graph checkpoint stores, and those that come back. Pure.

Source: ``org.apache.spark.streaming.Checkpoint.createSparkConf``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from penstock.errors import ConfigError

ConfPairs = tuple[tuple[str, str], ...]

_ADDRESSES = frozenset(
    {
        "spark.blockManager.port",
        "spark.driver.appUIAddress",
        "spark.driver.bindAddress",
        "spark.driver.host",
        "spark.driver.port",
        "spark.ui.port",
    }
)
_ONE_RUN = frozenset(
    {
        "spark.app.attempt.id",
        "spark.app.id",
        "spark.app.initial.archive.urls",
        "spark.app.initial.file.urls",
        "spark.app.initial.jar.urls",
        "spark.app.startTime",
        "spark.app.submitTime",
        "spark.executor.id",
        "spark.kubernetes.driver.pod.name",
        "spark.kubernetes.executor.podNamePrefix",
        "spark.yarn.app.attemptId",
        "spark.yarn.app.id",
    }
)
_FROM_SUBMIT = (
    *sorted(_ADDRESSES | _ONE_RUN),
    "spark.kerberos.keytab",
    "spark.kerberos.principal",
    "spark.master",
    "spark.ui.filters",
    "spark.yarn.jars",
    "spark.yarn.keytab",
    "spark.yarn.principal",
)
_FILTER = "spark.org.apache.spark.deploy.yarn.AmIpFilter.param."
_REDACTION = "spark.redaction.regex"
_SECRET = r"(?i)secret|password|token|access[.]?key"  # Spark's default


def settings_to_save(pairs: Iterable[tuple[str, str]]) -> ConfPairs:
    """Return the settings without secrets: those that ``spark.redaction.regex`` matches.

    Raises:
        ConfigError: that setting is not a regular expression.
    """
    pairs = tuple(pairs)
    pattern = dict(pairs).get(_REDACTION, _SECRET)
    try:
        secret = re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"setting {_REDACTION} is {pattern!r}",
            operation="read settings",
            ids={"setting": _REDACTION},
            hint="set a regular expression that is also valid in Python",
        ) from error
    return tuple((k, v) for k, v in pairs if not secret.search(k) and not secret.search(v))


def restored_settings(saved: ConfPairs, submitted: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a new run: the saved ones without those specific to the old run.

    Args:
        saved: the settings in the graph checkpoint.
        submitted: the settings from ``spark-submit``; none if the process was not submitted. Their
            master, addresses, ids and credentials take precedence.
    """
    restored = {k: v for k, v in saved if k not in _ADDRESSES | _ONE_RUN}
    return restored | {
        k: v for k, v in submitted.items() if k in _FROM_SUBMIT or k.startswith(_FILTER)
    }
