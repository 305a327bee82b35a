"""The demo's result, as JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demo measured; the fields are the keys of ``--json``.

    Attributes:
        fed: words in the files that were fed, by a direct count.
        processed: words in the sink.
        lost: words that the sink lacks, summed over the different words.
        duplicated: words that the sink has too many, likewise.
        restarts: how often the driver was killed and started again.
        records_per_s: lines committed a second, from the first line fed to the last commit, with
            all restarts in it. The feeder's pace bounds it.
        recovery_s: seconds from the start of a driver's process after a kill to its first commit:
            the longest of all; 0 without a restart.
    """

    fed: int
    processed: int
    lost: int
    duplicated: int
    restarts: int
    records_per_s: float
    recovery_s: float

    def is_good(self, kills: int) -> bool:
        """Whether something was fed, the driver was killed that often, and every word counts once."""
        return self.fed > 0 and self.lost == self.duplicated == 0 and self.restarts == kills

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return asdict(self)

    def to_table(self) -> Table:
        """Return the table."""
        table = Table()
        columns = {
            "fed": f"{self.fed:,}",
            "processed": f"{self.processed:,}",
            "lost": _flagged(self.lost),
            "duplicated": _flagged(self.duplicated),
            "restarts": f"{self.restarts}",
            "records/s": f"{self.records_per_s:,.0f}",
            "recovery seconds": f"{self.recovery_s:.1f}",
        }
        for title in columns:
            table.add_column(title, justify="right")
        table.add_row(*columns.values())
        table.caption = "fed to duplicated: words; records: lines; recovery: the longest"
        return table


def _flagged(count: int) -> str:
    return f"[bold {'red' if count else 'green'}]{count:,}[/]"
