"""Text stays text on every page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.status import Unreadable
from penstock.ui import pages
from tests.metrics.statuses import full_status
from tests.ui.served import journal_page, overview, program_page
from tests.ui.test_status import DONE
from tests.ui.world import EVIL


def test_hostile_text_is_shown_as_text() -> None:
    batch = replace(DONE, error=EVIL)
    status = replace(full_status(), name=EVIL, problems=(EVIL,), batches=(batch,))
    for page in (overview(status), program_page(status, 7), journal_page(status)):
        assert "<img" not in page
        assert "<script" not in page
        assert "\u202e" not in page
        assert "\\u202e" in page


@given(st.text())
def test_no_text_becomes_markup(text: str) -> None:
    usual, made = (_tags(overview(Unreadable("l", name, name))) for name in ("x", text))
    assert made == usual


def _tags(page: str) -> list[str]:
    return re.findall(r"<[^>]*>", page)


def test_a_whole_page_has_its_name_as_title() -> None:
    status = replace(full_status(), name="a <b>")
    values = pages.journal(0, status)
    page = pages.render("journal", status.name, values, part=False, signed_in=True)
    assert page.startswith("<!doctype html>")
    assert "<title>a &lt;b&gt; · penstock</title>" in page
    assert "Sign out" in page


def test_no_template_marks_text_as_safe() -> None:
    for name in pages._templates.list_templates():
        source, _, _ = pages._templates.loader.get_source(pages._templates, name)  # type: ignore[union-attr]
        assert "safe" not in source
        assert "autoescape" not in source


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("target: latestRate = 812.5, error = 3.1, processingRate = 700.123", "target"),
        ("no estimate: no batch yet", "no estimate: no batch yet"),
    ],
)
def test_a_reason_is_shown_without_its_terms(why: str, text: str) -> None:
    assert pages._in_short(why) == text
