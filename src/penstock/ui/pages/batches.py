"""The batches of a program or query: how long they wait and take, and each one in detail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from penstock.status.health import is_stopped
from penstock.status.model import BatchStatus, LocationStatus
from penstock.ui import words
from penstock.ui.charts import Column, Series, chart, column_data
from penstock.ui.html import Child, Html, h
from penstock.ui.pages.layout import content, location_head
from penstock.ui.parts import (
    Cell,
    cell,
    code,
    empty,
    facts,
    number,
    section,
    state,
    table,
    tiles,
)

WINDOWS = (50, 200, 1000)
"""How many of the newest batches the charts show."""
_MOST_COLUMNS = 250
_MOST_ROWS = 50
_OF_QUERIES = ("Batch", "Time", "State", "Records", "Processing", "Error")
"""What a query's checkpoint tells of a batch."""
_STATES = {
    "committed": ("ok", "committed"),
    "failed": ("error", "failed"),
    "running": ("busy", "running"),
    "interrupted": ("stopped", "interrupted"),
}
_NO_JOBS = {
    "program": "None is recorded yet: a DStream program records them with its next batch.",
    "query": "Of a query, Spark's own UI has them, on its page Structured Streaming.",
}

Value = Callable[[BatchStatus], float | None]


def batches_page(index: int, status: LocationStatus, window: int) -> Html:
    """Return the page with the timelines of the newest ``window`` batches."""
    shown = status.batches[-window:]
    return content(
        location_head(index, status, "batches"),
        _summary(status, shown),
        _timelines(index, status, shown, window),
        _list(index, status),
        read_ms=status.read_ms,
    )


def _summary(status: LocationStatus, shown: Sequence[BatchStatus]) -> Html:
    last = next((b for b in reversed(shown) if b.processing_ms is not None), None)
    interval_ms = status.batch_interval_ms
    took = [b.processing_ms for b in shown if b.processing_ms is not None]
    typical = round(median(took)) if took else None
    failed = sum(b.state == "failed" for b in shown)
    again = sum(b.is_rerun for b in shown)
    processing = [
        (
            "Processing, last",
            _delay(last, "processing_ms"),
            _over(last.processing_ms if last else None, interval_ms),
        ),
        (f"Processing, median of {len(took)}", words.delay(typical), _over(typical, interval_ms)),
    ]
    records = ("Records, last batch", words.count(last.records if last else None), "")
    interval = ("Batch interval", words.delay(interval_ms), "")
    ends = [
        ("Failed", words.count(failed), "error" if failed else ""),
        ("Ran again", words.count(again), "warning" if again else ""),
    ]
    if status.kind == "query":
        return tiles(
            *([interval] if interval_ms is not None else []),
            *processing,
            records,
            *(ends if _tells_ends(status) else []),
        )
    return tiles(
        interval,
        ("Scheduling delay", _delay(last, "scheduling_delay_ms"), _tone(last, interval_ms)),
        *processing,
        ("Total delay", _delay(last, "total_delay_ms"), ""),
        records,
        *ends,
    )


def _tells_ends(status: LocationStatus) -> bool:
    """Whether a location tells which batches failed or ran again; of a query, its session does."""
    return status.kind != "query" or status.process is not None


def _delay(batch: BatchStatus | None, name: str) -> str:
    return words.delay(None if batch is None else getattr(batch, name))


def _tone(batch: BatchStatus | None, interval_ms: int | None) -> str:
    return _over(None if batch is None else batch.scheduling_delay_ms, interval_ms)


def _over(value: int | None, interval_ms: int | None) -> str:
    is_over = value is not None and interval_ms is not None and value > interval_ms
    return "warning" if is_over else ""


def _timelines(
    index: int, status: LocationStatus, shown: Sequence[BatchStatus], window: int
) -> Html:
    if not shown:
        return section("Timelines", empty("No batch was planned yet."))
    groups = _grouped(shown)
    columns = [_column(index, group) for group in groups]
    interval_ms = status.batch_interval_ms

    def of(title: str, value: Value, *, lined: bool) -> Html | None:
        line = interval_ms if lined else None
        values = [_largest(group, value) for group in groups]
        return chart(Series(title, values, _ms, line, is_time=True), columns)

    taken = _input_rates(shown, interval_ms)
    rates = [_largest(group, lambda b: taken[b.batch_id]) for group in groups]
    unit = "Records per batch" if interval_ms is None else "Input rate, records/s"
    choice = [
        h(
            "a",
            str(each),
            href=f"/{index}/batches?last={each}",
            aria_current="true" if each == window else None,
        )
        for each in WINDOWS
    ]
    return section(
        "Timelines",
        h(
            "div",
            chart(Series(unit, rates, words.rate), columns),
            of("Scheduling delay", lambda b: b.scheduling_delay_ms, lined=True),
            of("Processing time", lambda b: b.processing_ms, lined=True),
            of("Total delay", lambda b: b.total_delay_ms, lined=True),
            class_="charts",
            tabindex=0,
            role="group",
            aria_label="Timelines: arrow keys choose a batch, Enter opens it",
            data_columns=column_data(columns),
        ),
        h(
            "p",
            h("span", "committed", class_="key"),
            [
                h("span", "failed", class_="key failed"),
                h("span", "ran again", class_="key rerun"),
            ]
            if _tells_ends(status)
            else None,
            h("span", "running", class_="key running"),
            h("span", f"batch interval, {words.delay(interval_ms)}", class_="key limit")
            if interval_ms is not None
            else None,
            h("span", "Last ", h("span", choice, class_="choice"), " batches", class_="last"),
            class_="legend",
        ),
    )


def _ms(value: float) -> str:
    return words.delay(round(value))


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


def _largest(group: Iterable[BatchStatus], value: Value) -> float | None:
    return max((found for b in group if (found := value(b)) is not None), default=None)


def _column(index: int, group: Sequence[BatchStatus]) -> Column:
    first, last = group[0], group[-1]
    ids = f"Batch {last.batch_id}"
    if len(group) > 1:
        ids = f"Batches {first.batch_id} to {last.batch_id}, the largest"
    tones = {b.state for b in group}
    again = any(b.is_rerun for b in group)
    words_ = [
        *(["failed"] if "failed" in tones else []),
        *(["ran again"] if again else []),
        *(["running"] if tones & {"running", "interrupted"} else []),
    ]
    label = ", ".join([f"{ids} · {words.clock(last.time_ms)} UTC", *words_])
    return Column(
        f"/{index}/batches/{last.batch_id}",
        label,
        words.clock(last.time_ms),
        "failed"
        if "failed" in tones
        else "rerun"
        if again
        else "running"
        if tones & {"running", "interrupted"}
        else "usual",
    )


def _list(index: int, status: LocationStatus) -> Html:
    newest = list(reversed(status.batches))[:_MOST_ROWS]
    earlier = status.earlier + len(status.batches) - len(newest)
    made = [(str(batch.batch_id), _row(index, status, batch)) for batch in newest]
    titles = _OF_QUERIES if status.kind == "query" else tuple(made[0][1]) if made else ()
    rows = [(key, [row[title] for title in titles]) for key, row in made]
    note = f"the newest {len(newest)}; the location keeps {earlier:,} before them"
    return section(
        "Batches",
        table("Batches", titles, rows, none="No batch was planned yet."),
        note=note if earlier else None,
    )


def _row(index: int, status: LocationStatus, batch: BatchStatus) -> Mapping[str, Cell]:
    late_ms, took_ms = batch.scheduling_delay_ms, batch.processing_ms
    interval_ms = status.batch_interval_ms
    link = h("a", str(batch.batch_id), href=f"/{index}/batches/{batch.batch_id}")
    return {
        "Batch": cell(link, "name"),
        "Time": cell(words.clock(batch.time_ms), "time"),
        "State": cell(_state(batch)),
        "Records": number(words.count(batch.records)),
        "Scheduling delay": number(words.delay(late_ms), _over(late_ms, interval_ms)),
        "Processing": number(words.delay(took_ms), _over(took_ms, interval_ms)),
        "Total delay": number(words.delay(batch.total_delay_ms)),
        "Plan": number(words.delay(batch.plan_ms)),
        "Commit": number(words.delay(batch.commit_ms)),
        "Error": cell(batch.error or "", "error-text"),
    }


def _state(batch: BatchStatus) -> list[Child]:
    kind, word = _STATES[batch.state]
    again = h("span", "ran again", class_="badge rerun") if batch.is_rerun else None
    return [state(kind, word), again]  # type: ignore[arg-type]


def batch_page(index: int, status: LocationStatus, batch_id: int) -> Html | None:
    """Return the page of one batch; None when it is not among the newest."""
    batch = next((b for b in status.batches if b.batch_id == batch_id), None)
    if batch is None:
        return None
    of_query, took = status.kind == "query", words.delay(batch.processing_ms)
    begin = "the begin of the run that ran it again" if batch.is_rerun else "its plan"
    has_took = of_query and batch.processing_ms is not None
    return content(
        location_head(index, status, "batches"),
        _neighbours(index, status, batch),
        facts(
            ("State", _state(batch)),
            ("Time", f"{words.day_and_clock(batch.time_ms)} UTC"),
            ("Records", words.count(batch.records)),
            ("Ended", words.age(batch.ended_ms, status.read_ms)),
            *([("Processing", f"{took}, from {begin} to its commit")] if has_took else []),
            ("Error", h("span", batch.error, class_="error-text") if batch.error else "none"),
        ),
        None if of_query else _durations(status, batch),
        _inputs(batch),
        _jobs(status, batch),
        read_ms=status.read_ms,
    )


def _neighbours(index: int, status: LocationStatus, batch: BatchStatus) -> Html:
    def link(text: str, batch_id: int) -> Child:
        known = any(b.batch_id == batch_id for b in status.batches)
        return h("a", text, href=f"/{index}/batches/{batch_id}") if known else None

    return h(
        "div",
        h("h2", f"Batch {batch.batch_id}"),
        h("a", "all batches", href=f"/{index}/batches"),
        link("earlier", batch.batch_id - 1),
        link("later", batch.batch_id + 1),
        class_="neighbours",
    )


def _durations(status: LocationStatus, batch: BatchStatus) -> Html:
    steps = (
        ("Plan: find where inputs end, write offsets", batch.plan_ms),
        ("Wait until its first job starts, plan included", batch.scheduling_delay_ms),
        ("Run: its jobs", batch.processing_ms),
        ("Commit: write that it is done", batch.commit_ms),
        ("Total delay: from when it was due to the end of its jobs", batch.total_delay_ms),
    )
    most = max([took for _, took in steps if took is not None] + [status.batch_interval_ms or 0, 1])
    rows = [
        (name, (cell(name, "reason"), number(words.delay(took)), cell(_meter(took, most))))
        for name, took in steps
    ]
    return section("Durations", table("Durations", ("Step", "Took", "Share"), rows))


def _meter(value: int | None, most: int) -> Html:
    """Return a bar of a part of the whole, as a drawing: its width is not a style."""
    width = 0 if value is None else max(200 * value / most, 1 if value else 0)
    bar = h("rect", x=0, y=0, width=f"{width:.1f}", height=10)
    return h(
        "svg",
        bar,
        class_="meter",
        viewBox="0 0 200 10",
        aria_hidden="true",
        preserveAspectRatio="none",
    )


def _inputs(batch: BatchStatus) -> Html:
    rows = [
        (
            each.name,
            (
                cell(each.name, "name"),
                number(words.count(each.records)),
                cell(code(each.start) if each.start else "the beginning, or not kept", "offsets"),
                cell(code(each.end), "offsets"),
            ),
        )
        for each in batch.inputs
    ]
    titles = ("Input", "Records", "From", "Up to")
    return section("Ranges", table("Ranges", titles, rows, none="It takes part of no input."))


def _jobs(status: LocationStatus, batch: BatchStatus) -> Html:
    rows = [
        (
            f"{number_} {job.name}",
            (
                cell(job.name, "name"),
                number(words.delay(job.took_ms)),
                cell(job.error or "", "error-text"),
            ),
        )
        for number_, job in enumerate(batch.jobs)
    ]
    link, ui = None, status.spark_ui or ""
    if ui.startswith(("http://", "https://")) and not is_stopped(status):
        link = h("a", "Spark's jobs", href=f"{ui}/jobs/", rel="noreferrer")
    none = _NO_JOBS.get(status.kind, "Only DStream programs record them.")
    return section(
        "Jobs", table("Jobs", ("Output operation", "Took", "Error"), rows, none=none), note=link
    )
