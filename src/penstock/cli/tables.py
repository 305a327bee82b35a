"""Tables of names and numbers: one line a row and never cut, whatever the terminal's width.

People copy their content into the next command, and search it with grep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from rich.cells import cell_len

from penstock.cli.output import printable

_GAP = "  "


def table_lines(
    titles: Sequence[str], rows: Iterable[Sequence[object]], *, right: Collection[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table, titles first; the columns named in ``right`` are of numbers."""
    cells = [[_one_line(str(value)) for value in row] for row in (titles, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    at_right = [title in right for title in titles]
    for row in cells:
        yield _GAP.join(map(_padded, row, widths, at_right)).rstrip()


def _padded(text: str, width: int, at_right: bool) -> str:
    space = " " * (width - cell_len(text))  # terminals show some characters in two columns
    return space + text if at_right else text + space


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))
