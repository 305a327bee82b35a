"""Spark's stream reader, over a planner.

Spark makes readers in several processes: one beside the driver, which plans, and those in which
``read`` runs. So a reader that is made or pickled is only its options; the planner begins with the
first call that plans.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.errors import PenstockError
from penstock.structured.admission import Admission
from penstock.structured.options import max_offsets
from penstock.structured.planner import StreamPlanner
from penstock.structured.rate_files import RateFiles, SourceRates, settings_of_options
from penstock.structured.session import Session

REPORT = "(penstock)"
"""The key of a reader's report in the latest offset, beside the source's own: no stream's name."""

_NO_MAXIMUM = 2**62
"""As a limit in rows: tells a query without a maximum from one that must take all there is."""


class PlannedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans a query's batches with the planner that ``open_planner`` returns.

    Args:
        name: the source's, as in ``penstock rate``.
        options: the source's, checked (``options.ADMISSION``).
        session: the Spark session's facts.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, str],
        session: Session,
    ) -> None:
        self._name = name
        self._options = dict(options)
        self._session = session
        self._max = max_offsets(options)
        self._rates: SourceRates | None = None
        self._planning: tuple[StreamPlanner, Admission] | None = None
        self._available: dict[str, Any] | None = None

    @abstractmethod
    def open_planner(self) -> StreamPlanner:
        """Return the planner; called once, in the process that plans."""

    @property
    def _planner(self) -> StreamPlanner:
        return self._planned_by[0]

    @property
    def _planned_by(self) -> tuple[StreamPlanner, Admission]:
        if self._planning is None:
            self._planning = (self.open_planner(), Admission())
            if settings_of_options(self._options).backpressure_enabled:
                files = RateFiles(self._session.folder)
                self._rates = SourceRates(files, self._name, self._options)
        return self._planning

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name, like those below)
        """Return where the query's first batch begins."""
        return self._planner.encode(self._planner.begin())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the query's own settings give."""
        return ReadMaxRows(_NO_MAXIMUM if self._max is None else self._max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: what there is now."""
        planner, admission = self._planned_by
        admission.end_at(planner.snapshot())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch, ``start`` if there is nothing to read."""
        planner, admission = self._planned_by
        begin = planner.decode(start)
        available = planner.latest(begin)
        self._available = planner.encode(available)
        starts = planner.starts(begin, available)
        most = self._limit(start, limit)
        end = admission.end_of_batch(begin, available, most, planner.lane, starts)
        if self._rates is not None:
            self._available[REPORT] = {
                **self._rates.report(),
                "records": sum(to - starts.get(each, 0) for each, to in end.items()),
            }
            if end is not begin:
                self._rates.planned()
        return planner.encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of all there was when the last batch was planned."""
        return self._available

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        planner = self._planner
        return list(planner.partitions(planner.decode(start), planner.decode(end)))

    def commit(self, end: dict[str, Any]) -> None:
        """Note that a batch is done."""
        self._planner.commit(self._planner.decode(end))

    def stop(self) -> None:
        """Release what the planner holds."""
        if self._planning is not None:
            self._planner.close()

    def _limit(self, start: dict[str, Any], limit: ReadLimit) -> float | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        limits = [] if self._rates is None else [self._rates.next_batch(start).limit]
        if isinstance(limit, ReadMaxRows) and limit.max_rows < _NO_MAXIMUM:
            limits.append(limit.max_rows)
        return min(limits, default=None)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planning": None, "_rates": None}


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises what is wrong with a query when Spark first asks.

    An error of ``DataSource.streamReader`` itself would end below one of Spark's own runner.
    """

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name, like those below)
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raise the error."""
        raise self._error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the error."""
        raise self._error
