"""HTML as values: what is not markup is escaped, always, so that names and records stay text.

    h("a", "clicks & more", href="/0/batches")   ->   <a href="/0/batches">clicks &amp; more</a>

Text also loses what controls a terminal or the direction of writing: such characters are shown as
escapes, as everywhere in penstock. There is one way to make markup, ``h``, and no way to mark other
text as safe.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from penstock.errors import one_line

_VOID = frozenset({"br", "hr", "input", "link", "meta"})


class Html(str):
    """Markup. Made by ``h`` and ``join`` only."""

    __slots__ = ()


Child = Html | str | int | None | Iterable["Child"]


def h(tag: str, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """Return an element.

    Names of attributes end with ``_`` where they are words of Python, and have ``_`` for ``-``.
    None and False leave an attribute out; True gives it no value.
    """
    opened = f"<{tag}{''.join(_attribute(*each) for each in attributes.items())}>"
    return Html(opened) if tag in _VOID else Html(f"{opened}{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Return markup and text one after the other, the text escaped."""
    return Html("".join(map(_render, children)))


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return html.escape(one_line(child), quote=False)
    if isinstance(child, int):
        return str(child)
    return join(child)


def _attribute(name: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    shown = name.rstrip("_").replace("_", "-")
    return f" {shown}" if value is True else f' {shown}="{html.escape(one_line(str(value)))}"'
