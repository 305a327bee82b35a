"""The checkpoint location: where the program stands, its state, and what is damaged."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.checkpoint.batch_ids import describe_ids
from penstock.checkpoint.tools import Finding
from penstock.status.checks import Checks
from penstock.status.model import LocationStatus
from penstock.ui import words
from penstock.ui.html import Child, Html, h
from penstock.ui.pages.layout import content, location_head
from penstock.ui.parts import (
    Cell,
    State,
    cell,
    code,
    facts,
    number,
    process_text,
    section,
    state,
    table,
)

_SEVERITIES: dict[str, State] = {"error": "error", "warning": "warning", "note": "stopped"}
_FINDINGS = ("Severity", "File", "What is wrong", "What follows", "To fix")
_OPERATORS = ("Operator", "Name", "Partitions", "Newest version", "Files", "Size")
_SOURCES = ("Source", "Files", "Size", "Newest log")
_INPUTS = ("Input", "Up to")


def checkpoint_page(index: int, status: LocationStatus, checks: Checks, *, validated: bool) -> Html:
    """Return the page; ``validated`` says whether the checks include a validation."""
    return content(
        location_head(index, status, "checkpoint"),
        section("Location", _facts(status)),
        _ends(status),
        _validation(index, checks, validated=validated),
        section("State", _operators(checks)) if checks.operators else None,
        section("Sources", _sources(checks)) if checks.sources else None,
        section("Not readable", h("ul", [h("li", each) for each in checks.problems]))
        if checks.problems
        else None,
        read_ms=status.read_ms,
    )


def _facts(status: LocationStatus) -> Html:
    following = status.next
    pairs: list[tuple[str, Child]] = [
        ("Path", code(status.location)),
        ("Id", status.id or "none"),
        ("Program's process", process_text(status.process)),
    ]
    if following is not None:
        again = describe_ids(following.rerun) or "none"
        pairs += [
            ("Newest committed batch", words.UNKNOWN if status.committed < 0 else status.committed),
            ("A start runs again", again),
            ("Its first new batch", following.batch_id),
            (
                "A start is possible",
                state("error", following.problem) if following.problem else state("ok", "yes"),
            ),
        ]
    return facts(*pairs)


def _ends(status: LocationStatus) -> Html | None:
    if not status.batches:
        return None
    last = status.batches[-1]
    rows = [(e.name, (cell(e.name, "name"), cell(code(e.end), "offsets"))) for e in last.inputs]
    return section("Offsets", table("Offsets", _INPUTS, rows), note=f"of batch {last.batch_id}")


def _validation(index: int, checks: Checks, *, validated: bool) -> Html:
    command = h("a", "Validate now", href=f"/{index}/checkpoint?validate=1", class_="button")
    if not validated:
        text = "Validation reads every file of the location, so it runs when you ask for it."
        return section("Validation", h("p", text, " ", command, class_="empty"))
    if not checks.findings:
        sound = state("ok", f"Sound: {checks.files:,} files, no findings.")
        return section("Validation", h("p", sound, class_="calm"))
    rows = [(f"{n} {each.path}", _finding(each)) for n, each in enumerate(checks.findings)]
    return section("Validation", table("Findings", _FINDINGS, rows))


def _finding(found: Finding) -> Sequence[Cell]:
    return (
        cell(state(_SEVERITIES[found.severity], found.severity)),
        cell(code(found.path), "name"),
        cell(found.what, "reason"),
        cell(found.meaning, "reason"),
        cell(found.fix, "reason"),
    )


def _operators(checks: Checks) -> Html:
    rows = [
        (
            each.operator,
            (
                cell(each.operator, "name"),
                cell(each.name or words.UNKNOWN),
                number(words.count(each.partitions)),
                number(words.UNKNOWN if each.newest_version is None else str(each.newest_version)),
                number(words.count(each.files)),
                number(words.size(each.size_bytes)),
            ),
        )
        for each in checks.operators
    ]
    return table("Operators with state", _OPERATORS, rows)


def _sources(checks: Checks) -> Html:
    rows = [
        (
            each.source,
            (
                cell(each.source, "name"),
                number(words.count(each.files)),
                number(words.size(each.size_bytes)),
                cell(each.newest or words.UNKNOWN),
            ),
        )
        for each in checks.sources
    ]
    return table("What sources keep", _SOURCES, rows)
