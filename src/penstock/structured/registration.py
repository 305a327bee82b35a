"""Makes the data sources known to a Spark session."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.conf import MetricsSettings, UiSettings
from penstock.errors import ConfigError
from penstock.structured.journal.source import JournalDataSource
from penstock.structured.kafka.source import KafkaDataSource
from penstock.structured.listener import RateListener
from penstock.structured.progress import ProgressListener, exporter_of
from penstock.structured.runs import RunListener
from penstock.structured.session import RETAINED, Session, bound_to, check_in_driver
from penstock.workers import use_this_python

if TYPE_CHECKING:
    from penstock.metrics import Exporter
    from penstock.ui import Dashboard


# -- the dashboard of a session's queries: served from the first query on, for the process's life --


class QueriesDashboard:
    """Shows the locations of queries. Thread-safe."""

    def __init__(self, settings: UiSettings, exporter: Exporter | None) -> None:
        self._settings = settings
        self._exporter = exporter
        self._lock = threading.Lock()
        self._served: Dashboard | None = None

    def show(self, location: str) -> None:
        """Show one more location, unless the dashboard is switched off."""
        if not self._settings.enabled:
            return
        from penstock.ui import dashboard_of_driver

        with self._lock:
            if self._served is None:
                self._served = dashboard_of_driver(self._settings, exporter=self._exporter)
            if self._served is not None:
                self._served.add(location)


_SOURCES = (JournalDataSource, KafkaDataSource)
_LEAVE_MS = 5000
_lock = threading.Lock()
_registered: set[str] = set()


def register(spark: SparkSession) -> None:
    """Make the formats known to a session, and the controller of their back pressure.

    They are ``penstock`` and ``penstock-kafka``. Does nothing if they are known.

    Raises:
        ConfigError: this is Spark Connect, Spark is older than 4.2, or metrics cannot be served.
    """
    check_in_driver(spark, "_jsparkSession", "register sources")
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        raise ConfigError(
            f"Spark {pyspark.__version__} has no admission control for Python data sources",
            operation="register sources",
            hint="install pyspark 4.2 or later",
        )
    with _lock:
        key = spark._jsparkSession.sessionUUID()
        if key not in _registered:
            conf = spark.sparkContext.getConf()
            exporter = exporter_of(MetricsSettings.from_conf(conf))
            session = _facts(spark)
            use_this_python(spark.sparkContext)
            with _active(spark):
                for source in _SOURCES:
                    spark.dataSource.register(bound_to(source, session))
            dashboard = QueriesDashboard(UiSettings.from_conf(conf), exporter)
            listener = RateListener(
                spark, session.folder, session.batches_to_retain, dashboard.show
            )
            runs = RunListener(spark)
            listeners = (listener, ProgressListener(spark, exporter), runs)
            for each in listeners:
                spark.streams.addListener(each)
            atexit.register(runs.close)
            atexit.register(_leave, spark, listeners)  # before that: what is registered last
            _registered.add(key)


def _leave(spark: SparkSession, listeners: Iterable[StreamingQueryListener]) -> None:
    """Hear what Spark has still to tell: later no Python answers, and it logs an error for each."""
    with suppress(Exception):  # the JVM has ended before this process does
        with suppress(Py4JError):  # it had more to tell
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_LEAVE_MS)
        for each in listeners:
            spark.streams.removeListener(each)


def _facts(spark: SparkSession) -> Session:
    folder = tempfile.mkdtemp(prefix="penstock-structured-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    retained = spark.conf.get(RETAINED)
    return Session(folder, spark.sparkContext.defaultParallelism, int(str(retained)))


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one: Spark looks there whether a name is taken already."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
