"""The SQL settings of the Spark session in which batches run.

A session takes seconds to start, and a program that uses only RDDs never has one. So this module
starts none: without a session it reads and changes the SparkContext's configuration, from which the
next session takes its settings.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.errors import ConfigError

_REFUSED = (Py4JJavaError, PySparkException)


class SessionConf:
    """The settings of the default session, or those that it will have."""

    def __init__(self, sc: SparkContext) -> None:
        self._shared: Any = sc._conf
        # Sessions that are started in Python or in the JVM become the default one there.
        sql: Any = sc._jvm.org.apache.spark.sql  # type: ignore[union-attr]
        session = sql.classic.SparkSession.getDefaultSession()
        self._session = session.get().conf() if session.isDefined() else None
        self._sql = sql

    def explicit(self, name: str) -> str | None:
        """Return the value to which a setting was set, None if it was not."""
        for conf in (self._session, self._shared):
            if conf is not None and conf.contains(name):
                return str(conf.get(name))
        return None

    def get(self, name: str) -> str | None:
        """Return the value of a setting, or Spark's default; None if there is neither."""
        if (value := self.explicit(name)) is None:
            with suppress(*_REFUSED):  # this Spark has no such setting
                value = self._spare.getConfString(name)
        return None if value is None else str(value)

    def set(self, name: str, value: str) -> None:
        """Set a setting.

        Raises:
            ConfigError: Spark does not accept the value.
        """
        try:
            self._spare.setConfString(name, value)  # the shared configuration accepts any
        except _REFUSED as error:
            raise ConfigError(
                f"Spark does not accept {value!r} for setting {name}",
                operation="set session settings",
                ids={"setting": name},
                hint="use the release of Spark that this value is for",
            ) from error
        (self._shared if self._session is None else self._session).set(name, value)

    @cached_property
    def _spare(self) -> Any:
        """Settings of no session: they have Spark's defaults, and check values."""
        return self._sql.internal.SQLConf()
