"""Text stays text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.ui.html import h
from tests.ui.world import EVIL


def test_an_element() -> None:
    made = h("a", "a & b", h("b", 7), None, ["x", "<y>"], href="/?a=1&b", class_="n", hidden=True)
    assert made == '<a href="/?a=1&amp;b" class="n" hidden>a &amp; b<b>7</b>x&lt;y&gt;</a>'
    assert h("br") == "<br>"
    assert h("i", data_key="k", title=None, open=False) == '<i data-key="k"></i>'


def test_hostile_text() -> None:
    made = h("p", EVIL, title=EVIL)
    assert "<img" not in made
    assert "<script" not in made
    assert made.count("<") == 2
    assert "\u202e" not in made
    assert "\\u202e" in made


@given(st.text())
def test_no_text_becomes_markup(text: str) -> None:
    made = h("p", text, title=text)
    assert made.startswith('<p title="')
    assert made.count("<") == 2
    assert made.count('"') - made.partition(">")[2].count('"') == 2
