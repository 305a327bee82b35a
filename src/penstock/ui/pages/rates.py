"""Back pressure: each input's limit, what the estimator decided, and why."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.status.model import InputStatus, LocationStatus, RateChange
from penstock.ui import words
from penstock.ui.charts import Column, Series, chart, column_data
from penstock.ui.html import Html, h
from penstock.ui.pages.layout import content, location_head
from penstock.ui.parts import Cell, cell, empty, number, section, state, table, tiles

_MOST_COLUMNS = 200
_MOST_ROWS = 30
_TITLES = (
    "Batch",
    "Ended",
    "Records",
    "Limit, records",
    "Took",
    "Late",
    "Estimate, records/s",
    "Rate, records/s",
    "Reason",
)


def rates_page(index: int, status: LocationStatus, *, may_change: bool) -> Html:
    """Return the page; with forms to set limits where they may be changed."""
    return content(
        location_head(index, status, "rates"),
        [_input(index, status, each, may_change=may_change) for each in status.inputs]
        or empty("No batch was planned yet, so the inputs are not known."),
        h(
            "p",
            "To change limits here, start the dashboard with a token; or use penstock rate.",
            class_="empty",
        )
        if status.inputs and not may_change
        else None,
        read_ms=status.read_ms,
    )


def _input(index: int, status: LocationStatus, found: InputStatus, *, may_change: bool) -> Html:
    shown = found.changes[-_MOST_COLUMNS:]
    return section(
        f"Input {found.name}",
        tiles(
            (
                "State",
                state("warning", "paused") if found.is_paused else state("ok", "not paused"),
                "",
            ),
            ("Limit now, records/s", words.rate(found.rate), ""),
            ("Set by an operator, records/s", words.rate(found.max_rate), ""),
            ("Waiting, records", words.count(found.lag_records), ""),
            ("Age of the oldest", words.delay(found.lag_ms), ""),
        ),
        _form(index, found) if may_change else None,
        _charts(index, shown) if shown else empty(_no_limit(status)),
        table(
            f"Decisions for {found.name}",
            _TITLES,
            [(str(each.batch_id), _row(index, each)) for each in reversed(shown[-_MOST_ROWS:])],
        )
        if shown
        else None,
    )


def _no_limit(status: LocationStatus) -> str:
    ended = any(batch.state == "committed" for batch in status.batches)
    if not ended:
        return "No batch has ended yet."
    if status.kind == "query":
        return (
            "No batch is known to have had a limit: back pressure is off (the option "
            "backpressure.enabled), or no batch ended but one that ran again."
        )
    return (
        "No batch had a limit: back pressure is off (spark.streaming.backpressure.enabled), and no "
        "highest rate is set."
    )


def _charts(index: int, shown: Sequence[RateChange]) -> Html:
    columns = [
        Column(
            f"/{index}/batches/{each.batch_id}",
            f"Batch {each.batch_id} · {words.clock(each.time_ms)} UTC · {words.reason(each.why)}",
            words.clock(each.time_ms),
            "usual",
        )
        for each in shown
    ]
    return h(
        "div",
        chart(Series("Rate allowed, records/s", [e.rate for e in shown], words.rate), columns),
        chart(Series("Records taken", [e.records for e in shown], words.rate), columns),
        class_="charts",
        tabindex=0,
        role="group",
        aria_label="Rates: arrow keys choose a batch, Enter opens it",
        data_columns=column_data(columns),
    )


def _row(index: int, change: RateChange) -> Sequence[Cell]:
    return (
        cell(h("a", str(change.batch_id), href=f"/{index}/batches/{change.batch_id}"), "name"),
        cell(words.clock(change.time_ms), "time"),
        number(words.count(change.records)),
        number(words.rate(change.limit)),
        number(words.delay(change.processing_ms)),
        number(words.delay(change.scheduling_delay_ms)),
        number(words.rate(change.estimate)),
        number(words.rate(change.rate)),
        cell(words.reason(change.why), "reason"),
    )


def _form(index: int, found: InputStatus) -> Html:
    field = f"rate-{found.name}"
    shown = "" if found.max_rate is None else f"{found.max_rate:.15g}"
    return h(
        "form",
        h("input", type="hidden", name="stream", value=found.name),
        h("label", "Highest rate, records/s", for_=field),
        h(
            "input",
            id=field,
            name="rate",
            value=shown,
            inputmode="decimal",
            autocomplete="off",
            placeholder="the program's own",
        ),
        h("button", "Set", name="action", value="set"),
        h("button", "Use the program's own", name="action", value="default"),
        h("button", "Resume", name="action", value="resume")
        if found.is_paused
        else h("button", "Pause input", name="action", value="pause"),
        method="post",
        action=f"/{index}/rates",
        class_="control",
    )
