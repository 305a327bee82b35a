"""Settings that a batch's results depend on: those of the location's first batch stay in effect.

Each entry of the offset log records them in its conf, as in Spark. At a restart they replace those
of the session, so that a batch that runs again gives the same results. What is recorded:

- the settings that Spark records for its own queries (``OffsetSeqMetadata.relevantSQLConfs``), and
  ``spark.sql.shuffle.partitions``;
- ``spark.penstock.batchIntervalMs``. A program may change it: windows and state continue on the
  grid of the location's zero time. Only a warning says so, with both values.

The kind of records is recorded in the journal (stream.json), which refuses another one.

An entry of an earlier Spark may lack a setting. Spark then falls back to the formats of the time
before the setting, for the state of its own queries. A penstock program has no such state, and
other queries may share its session, so the session's value stays and is recorded from then on.

Source: ``OffsetSeqMetadata.setSessionConf``; the messages are Spark's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from penstock.errors import ConfigError, RecoveryMismatchError
from penstock.streaming.core.session_conf import SessionConf

_log = logging.getLogger("penstock.OffsetSeqMetadata")

_BATCH_INTERVAL = "spark.penstock.batchIntervalMs"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_RELEVANT = (
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.stateStore.compression.codec",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion",
    "spark.sql.streaming.statefulOperator.useStrictDistribution",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
    "spark.sql.streaming.stateStore.encodingFormat",
    "spark.sql.streaming.stateStore.rowChecksum.enabled",
)
"""For a Spark that does not tell: those that all of Spark 4 have in common."""


def settle_conf(sc: SparkContext, recorded: Mapping[str, str], interval_ms: int) -> dict[str, str]:
    """Set the session's settings to the recorded ones; return those to record from now on.

    ``recorded`` is the conf of the newest entry of the offset log, empty in a new location.

    Raises:
        RecoveryMismatchError: this Spark does not accept a recorded value.
    """
    session = SessionConf(sc)
    before_ms = recorded.get(_BATCH_INTERVAL, str(interval_ms))
    if before_ms != str(interval_ms):
        _log.warning(
            "The batch interval was %s ms and is %d ms from now on: functions that are called once "
            "a batch (updateStateByKey) are called at other times. Windows keep theirs",
            before_ms,
            interval_ms,
        )
    settled = {_BATCH_INTERVAL: str(interval_ms)}
    for name in _relevant_names(sc):
        current, value = session.get(name), recorded.get(name)
        if value is None:
            value = current
            if recorded and value is not None:
                _log.info(
                    "Conf '%s' was not found in the offset log. Using existing session conf value "
                    "'%s'.",
                    name,
                    value,
                )
        elif value != current:
            try:
                session.set(name, value)
            except ConfigError as error:
                raise _mismatch(name, current, value) from error
            if current is not None:
                _log.warning(
                    "Updating the value of conf '%s' in current session from '%s' to '%s'.",
                    name,
                    current,
                    value,
                )
        if value is not None:
            settled[name] = value
    return settled


def _mismatch(name: str, current: str | None, recorded: str) -> RecoveryMismatchError:
    return RecoveryMismatchError(
        f"the batches of the checkpoint location ran with {name}={recorded}, which this Spark does "
        f"not accept; it has {current}",
        operation="recover",
        ids={"setting": name},
        hint="run the program with the release of Spark that planned these batches, or a later "
        "one; or start with a new checkpoint location",
    )


def _relevant_names(sc: SparkContext) -> list[str]:
    """Return the names of the settings that this Spark records for its own queries."""
    streaming: Any = sc._jvm.org.apache.spark.sql.execution.streaming  # type: ignore[union-attr]
    try:
        module = getattr(getattr(streaming.checkpointing, "OffsetSeqMetadata$"), "MODULE$")
        entries = module.relevantSQLConfs()
        names = [str(entries.apply(index).key()) for index in range(entries.size())]
    except (Py4JError, TypeError):  # py4j calls a name that it does not know a package
        names = list(_RELEVANT)
    return list(dict.fromkeys([_SHUFFLE_PARTITIONS, *names]))
