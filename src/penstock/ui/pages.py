"""The pages: templates (``templates/``), and what they need besides a location's status.

The templates escape all text, and what controls a terminal or the direction of writing is shown as
escapes, as everywhere in penstock. No template marks text as safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from penstock.checkpoint.batch_ids import describe_ids
from penstock.errors import one_line
from penstock.status import LocationStatus, Reason, Unreadable, duration, health, words
from penstock.status.health import is_dead, is_stopped
from penstock.status.model import BatchStatus, ConsumerStatus, InputStatus
from penstock.ui import charts
from penstock.ui.charts import Column, Group, Series, Tone

WINDOWS = (50, 200, 1000)
"""How many of the newest batches the charts show."""
_MOST_COLUMNS = 250
_MOST_ROWS = 20
_MOST_DECISIONS = 200
_MOST_REASONS = 20
_SPARK = 60


def overview(found: Sequence[LocationStatus | Unreadable]) -> Mapping[str, Any]:
    """Return what the overview of all locations shows, in the order in which they were given."""
    judged = [
        (index, each, health(each))
        for index, each in enumerate(found)
        if isinstance(each, LocationStatus)
    ]
    reasons = [
        (reason, index, each)
        for index, each, its in judged
        for reason in its.reasons
        if reason.level != "stopped"
    ]
    reasons.sort(key=lambda each: each[0].level != "error")
    return {
        "unreadable": [each for each in found if isinstance(each, Unreadable)],
        "reasons": reasons[:_MOST_REASONS],
        "more": max(len(reasons) - _MOST_REASONS, 0),
        "programs": [each for each in judged if each[1].kind != "journal"],
        "streams": [(index, each, s) for index, each, _ in judged for s in each.streams],
        "read_ms": max((each.read_ms for _, each, _ in judged), default=None),
    }


def program(
    index: int, status: LocationStatus, window: int, batch_id: int | None, *, may_change: bool
) -> Mapping[str, Any] | None:
    """Return what the page of a program or query shows.

    Args:
        index: the location's place among those that are shown.
        status: its status.
        window: how many of the newest batches the charts show.
        batch_id: the batch that is shown in detail; None for none.
        may_change: whether rates may be changed.

    Returns:
        None when the batch is not among the newest that are kept.
    """
    chosen = next((b for b in status.batches if b.batch_id == batch_id), None)
    if batch_id is not None and chosen is None:
        return None
    shown = status.batches[-window:]
    newest = list(reversed(status.batches))[:_MOST_ROWS]
    ui = status.spark_ui or ""
    return {
        **_location(index, status),
        "chosen": chosen,
        "neighbours": _neighbours(status, chosen),
        "shown": shown,
        "last": _last_ended(status),
        "window": window,
        "windows": WINDOWS,
        "timelines": _timelines(index, status, shown),
        "newest": newest,
        "earlier": status.earlier + len(status.batches) - len(newest),
        "rate_charts": {each.name: _rates(index, each) for each in status.inputs},
        "may_change": may_change,
        # Of a query, its session tells which batches failed or ran again.
        "tells_ends": status.kind != "query" or status.process is not None,
        "spark_jobs": f"{ui}/jobs/"
        if ui.startswith(("http://", "https://")) and not is_stopped(status)
        else None,
        "receivers_found": sorted(
            (each for stream in status.streams for each in stream.receivers),
            key=lambda each: (each.state == "stopped", each.stream, each.name),
        ),
    }


def journal(index: int, status: LocationStatus) -> Mapping[str, Any]:
    """Return what the journal's page shows."""
    names = {each.name for each in status.streams}
    return {
        **_location(index, status),
        # Those without a journal, such as Kafka topics.
        "other_inputs": [name for name in {**status.letters, **status.losses} if name not in names],
    }


def render(name: str, title: str, values: Mapping[str, Any], *, part: bool, signed_in: bool) -> str:
    """Return a page, or only its main part, which the page's script puts in place."""
    template = _templates.get_template(f"{name}.html")
    return template.render(
        {"read_ms": None, **values}, title=title, part=part, signed_in=signed_in
    ).strip()


def _location(index: int, status: LocationStatus) -> dict[str, Any]:
    return {
        "index": index,
        "status": status,
        "its": health(status),
        "has_journal": status.kind in ("program", "journal")
        or bool(status.losses or status.dead_letters),
        "read_ms": status.read_ms,
    }


def _neighbours(status: LocationStatus, batch: BatchStatus | None) -> Sequence[tuple[str, int]]:
    if batch is None:
        return ()
    known = {each.batch_id for each in status.batches}
    found = (("earlier", batch.batch_id - 1), ("later", batch.batch_id + 1))
    return [each for each in found if each[1] in known]


def _batch_url(index: int, batch_id: int) -> str:
    return f"/{index}?batch={batch_id}#batch"


def _reason_url(index: int, status: LocationStatus, reason: Reason) -> str:
    """Return where more of a reason is shown."""
    if reason.page == "batches" and reason.place:
        return f"/{index}?batch={reason.place}#batch"
    if reason.page == "journal":
        return f"/{index}/journal#{reason.place}"
    return f"/{index}/journal" if status.kind == "journal" else f"/{index}#{reason.page}"


# -- charts --


def _timelines(index: int, status: LocationStatus, shown: Sequence[BatchStatus]) -> Group | None:
    if not shown:
        return None
    groups = _grouped(shown)
    interval_ms = status.batch_interval_ms
    taken = _input_rates(shown, interval_ms)

    def largest(value: Callable[[BatchStatus], float | None]) -> list[float | None]:
        return [
            max((found for b in each if (found := value(b)) is not None), default=None)
            for each in groups
        ]

    def time(title: str, value: Callable[[BatchStatus], float | None]) -> Series:
        return Series(
            title, largest(value), lambda ms: duration(round(ms)), interval_ms, is_time=True
        )

    unit = "Records per batch" if interval_ms is None else "Input rate, records/s"
    return charts.group(
        [_column(index, each) for each in groups],
        Series(unit, largest(lambda b: taken[b.batch_id]), words.rate),
        time("Scheduling delay", lambda b: b.scheduling_delay_ms),
        time("Processing time", lambda b: b.processing_ms),
        time("Total delay", lambda b: b.total_delay_ms),
    )


def _input_rates(
    batches: Sequence[BatchStatus], interval_ms: int | None
) -> dict[int, float | None]:
    """Return the records per second of each batch, its records where there is no interval.

    A batch that comes late has the records of all intervals since the batch before it.
    """
    rates: dict[int, float | None] = {}
    before_ms = None
    for each in batches:
        rate: float | None = each.records
        if each.records is not None and interval_ms is not None:
            known = before_ms is not None and each.time_ms is not None
            span_ms = (each.time_ms or 0) - (before_ms or 0) if known else 0
            rate = each.records * 1000 / max(span_ms, interval_ms)
        rates[each.batch_id] = rate
        before_ms = each.time_ms
    return rates


def _grouped(batches: Sequence[BatchStatus]) -> list[Sequence[BatchStatus]]:
    """Return the batches of each column: neighbours together where there are many."""
    each = -(-len(batches) // _MOST_COLUMNS)
    first = len(batches) % each  # the newest column is always a whole one
    starts = range(first - each if first else 0, len(batches), each)
    return [batches[max(start, 0) : start + each] for start in starts]


def _column(index: int, group: Sequence[BatchStatus]) -> Column:
    first, last = group[0], group[-1]
    ids = f"Batch {last.batch_id}"
    if len(group) > 1:
        ids = f"Batches {first.batch_id} to {last.batch_id}, the largest"
    tones: dict[Tone, str] = {}
    if any(b.state == "failed" for b in group):
        tones["failed"] = "failed"
    if any(b.is_rerun for b in group):
        tones["rerun"] = "ran again"
    if any(b.state in ("running", "interrupted") for b in group):
        tones["running"] = "running"
    time = words.clock(last.time_ms)
    return Column(
        _batch_url(index, last.batch_id),
        ", ".join([f"{ids} · {time} UTC", *tones.values()]),
        time,
        next(iter(tones), "usual"),
    )


def _rates(index: int, found: InputStatus) -> Group:
    changes = found.changes[-_MOST_DECISIONS:]
    columns = [
        Column(
            _batch_url(index, each.batch_id),
            f"Batch {each.batch_id} · {words.clock(each.decision.time_ms)} UTC · "
            f"{_in_short(each.decision.why)}",
            words.clock(each.decision.time_ms),
            "usual",
        )
        for each in changes
    ]
    return charts.group(
        columns,
        Series("Rate allowed, records/s", [each.decision.rate for each in changes], words.rate),
        Series("Records taken", [each.decision.num_elements for each in changes], words.rate),
    )


# -- what templates call --


def _plain(value: Any) -> Any:
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _in_short(why: str) -> str:
    """Return a reason without the numbers that it came of: `penstock rate --json` has them."""
    word, _, terms = why.partition(": ")
    return word if "=" in terms else why


def _over(value: int | None, limit: int | None) -> str:
    return "warning" if value is not None and limit is not None and value > limit else ""


def _largest(values: Iterable[int | None]) -> int | None:
    return max((each for each in values if each is not None), default=None)


def _total(values: Iterable[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _last_ended(status: LocationStatus) -> BatchStatus | None:
    """Return the newest committed batch whose delays are recorded, or else whose time is known."""
    ended = [b for b in status.batches if b.state == "committed" and b.processing_ms is not None]
    recorded = [b for b in ended if b.total_delay_ms is not None]
    return (recorded or ended)[-1] if ended else None


def _last_error(status: LocationStatus) -> str:
    failed = [each for each in status.batches if each.error is not None]
    errors = [r.last_error for s in status.streams for r in s.receivers if r.last_error]
    if failed:
        return f"batch {failed[-1].batch_id}: {failed[-1].error}"
    return errors[-1] if errors else ""


def _spark(status: LocationStatus) -> str:
    return charts.sparkline([each.records for each in status.batches[-_SPARK:]])


def _consumer_state(status: LocationStatus, found: ConsumerStatus) -> tuple[str, str]:
    """Return the class and the word of a consumer's state."""
    if is_dead(status, found):
        return "error", "dead"
    is_own = found.is_of(status.location) and is_stopped(status)
    return ("stopped", "stopped") if found.is_stopped or is_own else ("ok", "reads")


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": words.count,
        "rate": words.rate,
        "delay": duration,
        "age": words.ago,
        "bytes": words.size,
        "clock": words.clock,
        "time": words.day_and_clock,
        "ids": describe_ids,
        "in_short": _in_short,
        "largest": _largest,
        "total": _total,
    }
    made.globals |= {
        "batch_url": _batch_url,
        "reason_url": _reason_url,
        "consumer_state": _consumer_state,
        "over": _over,
        "last_ended": _last_ended,
        "last_error": _last_error,
        "spark": _spark,
        "plot": charts,
    }
    return made


_templates = _environment()
