"""The RateManager: applies the rate limits of every input of a running program.

    batch ended ── controller ── rate ──┬── cut of the next batch's range     (planning thread)
    overrides (files) ──────────────────┴── commands to receivers             (a separate thread)

The rate applies to one interval, whether or not ticks were merged into the batch: the size of a
batch depends on how long batches may take. Receivers get the same rate, or a lower one while
records wait in the journal (penstock.rate.input_rate).

The conf of the next offsets/N stores the state that a controller needs after a restart, and the
rate's history (penstock.rate.history).

Source: ``org.apache.spark.streaming.scheduler.RateController`` and its use in the JobGenerator.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.conf import RateSettings
from penstock.errors import LogFormatError, PenstockError, StreamingError
from penstock.rate import (
    RATES_KEY,
    Carry,
    EndedBatch,
    InputRate,
    KeptRates,
    RateEstimator,
    RateOverride,
    RateOverrides,
    ReceiveLimit,
    decode_rates,
    encode_rates,
)
from penstock.streaming.core.batch import InputLimit, SourceRange
from penstock.streaming.engine.jobs import JobSet
from penstock.streaming.inputs.input import InputDStream

_log = logging.getLogger(__name__)


@dataclass
class _Entry:
    """One input, and the state of its rate besides the limits."""

    stream: InputDStream
    rate: InputRate
    carry: Carry = field(default_factory=Carry)
    controller_state: str | None = None
    ended: list[EndedBatch] = field(default_factory=list)
    why: str = ""


class RateManager:
    """Holds the rates of one program's inputs.

    Args:
        inputs: the program's inputs.
        batch_interval_ms: length of a batch.
        settings: the program's settings of rates.
        conf: Spark's configuration, for estimators.
        overrides: the rate overrides in the checkpoint location.
        kept: the rates in the newest entry of the offset log, None when there are none.

    Raises:
        ConfigError: the estimator cannot be created.
        LogFormatError: the file of an override is damaged.
    """

    def __init__(
        self,
        inputs: Sequence[InputDStream],
        batch_interval_ms: int,
        settings: RateSettings,
        conf: Mapping[str, str],
        overrides: RateOverrides,
        kept: str | None,
    ) -> None:
        self._overrides = overrides
        self._lock = threading.Lock()  # guards the data for the next log entry
        self._override_lock = threading.Lock()  # one override is read or set at a time
        before = _restorable(kept)
        self._entries = {
            stream.name: _make_entry(
                stream, batch_interval_ms, settings, conf, before.get(stream.name)
            )
            for stream in inputs
        }
        for name in self._entries:
            self._follow(name, overrides.get(name))
        self._send: Callable[[str, ReceiveLimit], None] = lambda stream, limit: None
        self._wake = threading.Event()
        self._stopped = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="penstock-rates", daemon=True)
        self._poll_s = 0.0

    def start(self, send: Callable[[str, ReceiveLimit], None], poll_ms: int) -> None:
        """Start to poll overrides, and to send receivers their limits."""
        self._send, self._poll_s = send, poll_ms / 1000
        self._thread.start()

    def stop(self) -> None:
        """Stop polling and sending."""
        self._stopped = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def receive_limit(self, stream: str) -> ReceiveLimit:
        """Return the current limit of each of a stream's receivers."""
        return self._entries[stream].rate.receive_limit()

    def override(self, stream: str, change: Callable[[RateOverride], RateOverride]) -> None:
        """Change the override of a stream; it takes effect at once and applies across restarts.

        Raises:
            StreamingError: the program has no such input, or the input supports no limits.
            StorageError: it could not be made durable; the previous override still applies.
        """
        entry = self._entries.get(stream)
        with self._override_lock:
            override = change(RateOverride() if entry is None else entry.rate.override)
            if entry is None or (override.max_rate is not None and not entry.stream.takes_limits):
                raise StreamingError(
                    f"stream {stream!r} is not an input of the program that supports a rate limit",
                    operation="set rate",
                    ids={"stream": stream},
                    hint=f"name one of: {', '.join(self._limited()) or '(there is none)'}",
                )
            self._overrides.set(stream, override)
            self._follow(stream, override)
        self._wake.set()

    # -- planning (one thread) --

    def limit(
        self, available: Sequence[SourceRange], is_missed: bool
    ) -> tuple[tuple[SourceRange, ...], dict[str, InputLimit]]:
        """Return the ranges of the next batch, cut from the available ones, and the inputs' limits.

        Limits are by name, for inputs that take limits; the batch of a missed tick has none.
        """
        if is_missed:
            pairs = zip(self._entries.values(), available, strict=True)
            return tuple(_unless_paused(entry, there) for entry, there in pairs), {}
        cuts = [*map(self._cut, self._entries.values(), available)]
        limits = {
            entry.stream.name: InputLimit(
                entry.rate.limits().records,
                entry.why,
                waiting + entry.stream.unreadable_records(),
            )
            for entry, (_, waiting) in zip(self._entries.values(), cuts, strict=True)
            if entry.stream.takes_limits
        }
        self._wake.set()
        return tuple(cut for cut, _ in cuts), limits

    def conf(self) -> dict[str, str]:
        """Return the rates for the next entry of the offset log; each batch once."""
        with self._lock:
            kept = {
                name: KeptRates(entry.controller_state, tuple(entry.ended))
                for name, entry in self._entries.items()
                if entry.controller_state is not None or entry.ended
            }
            for entry in self._entries.values():
                entry.ended = []
        return {RATES_KEY: encode_rates(kept)} if kept else {}

    def _cut(self, entry: _Entry, there: SourceRange) -> tuple[SourceRange, int]:
        """Return the range of the next batch, and how many records it leaves."""
        if entry.rate.override.paused:
            return _unless_paused(entry, there), entry.stream.record_count(there)
        cut, entry.carry = entry.stream.cut(there, entry.rate.limits(), entry.carry)
        waiting = entry.stream.record_count(SourceRange(cut.end, there.end))
        entry.rate.note_waiting(waiting)
        return cut, waiting

    # -- batches that ended (threads of jobs) --

    def batch_done(self, job_set: JobSet) -> None:
        """Process a batch that succeeded. A failed batch says nothing about the cost of batches."""
        start_ms, end_ms = job_set.started_ms, job_set.ended_ms
        if start_ms is None or end_ms is None:
            return
        late_ms = max(start_ms - job_set.due_ms, 0)
        for name, entry in self._entries.items():
            if not entry.stream.takes_limits or entry.stream.id not in job_set.inputs:
                continue
            records = job_set.inputs[entry.stream.id].num_records
            try:
                self._learn(entry, job_set, (end_ms, records, end_ms - start_ms, late_ms))
            except Exception:  # estimator and controller may be custom
                _log.exception("The rate of stream %s does not change: its controller failed", name)
        self._wake.set()

    def _learn(self, entry: _Entry, job_set: JobSet, batch: tuple[int, int, int, int]) -> None:
        decision = entry.rate.on_batch_completed(*batch)
        if decision is None:
            return
        allowed = job_set.limits.get(entry.stream.name)
        ended = EndedBatch(job_set.batch.id, None if allowed is None else allowed.records, decision)
        controller = entry.rate.controller
        state = None if controller is None else controller.to_json()
        with self._lock:
            entry.ended.append(ended)
            entry.controller_state = state
            entry.why = decision.why
        _log.debug("Stream %s, batch %d: %s", entry.stream.name, job_set.batch.id, decision)

    # -- overrides (a separate thread) --

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stopped:
            self._wake.wait(max(0.0, due_s - time.monotonic()))
            self._wake.clear()
            # Each batch wakes this up to send; a poll is a request to an object store.
            is_due = time.monotonic() >= due_s
            if is_due:
                due_s = time.monotonic() + self._poll_s
            for name, entry in self._entries.items():
                try:
                    if is_due:
                        self._poll(name)
                    self._send(name, entry.rate.receive_limit())
                except PenstockError as e:
                    self._note(e)

    def _poll(self, name: str) -> None:
        with self._override_lock:
            override = self._overrides.get(name)
            if override != self._entries[name].rate.override:
                self._follow(name, override)
                _log.info("Rate override of stream %s: %s", name, override)

    def _follow(self, name: str, override: RateOverride) -> None:
        entry = self._entries[name]
        if override.max_rate is not None and not entry.stream.takes_limits:
            _log.warning("Stream %s takes no rate limit; it can only be paused", name)
        entry.rate.follow(override)

    def _note(self, error: PenstockError) -> None:
        """Log an error, once for each problem; the limits do not change."""
        if str(error) != self._problem:
            self._problem = str(error)
            _log.warning("Rate limits cannot be brought up to date: %s", error)

    def _limited(self) -> list[str]:
        return [name for name, entry in self._entries.items() if entry.stream.takes_limits]


def _unless_paused(entry: _Entry, there: SourceRange) -> SourceRange:
    return SourceRange(there.start, there.start) if entry.rate.override.paused else there


def _make_entry(
    stream: InputDStream,
    batch_interval_ms: int,
    settings: RateSettings,
    conf: Mapping[str, str],
    kept: KeptRates | None,
) -> _Entry:
    own = settings if stream.max_rate is None else replace(settings, max_rate=stream.max_rate)
    controller = None
    if own.backpressure_enabled and stream.takes_limits:
        assert own.first_rate is not None  # back pressure is on
        controller = stream.rateController(
            RateEstimator.create(conf, batch_interval_ms),
            initial_rate=own.first_rate,
            min_rate=own.min_rate,
            max_rate=own.max_rate,
        )
    if controller is not None and kept is not None and kept.controller is not None:
        try:
            controller.restore(kept.controller)
        except LogFormatError as e:
            _log.warning("Stream %s starts at its initial rate: %s", controller.stream, e)
    rate = InputRate(batch_interval_ms, own, controller, stream.receiver_count)
    state = None if controller is None else controller.to_json()
    return _Entry(stream, rate, controller_state=state)


def _restorable(kept: str | None) -> dict[str, KeptRates]:
    """Return the rates of an earlier run; without them inputs start at their initial rates."""
    if kept is None:
        return {}
    try:
        return decode_rates(kept)
    except LogFormatError as e:
        _log.warning("Inputs start at their initial rates: %s", e)
        return {}
