"""The demo's result, as JSON and as a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


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
        """Whether text was fed, every word counts once, and the driver was killed that often."""
        return self.fed > 0 and self.lost == self.duplicated == 0 and self.restarts == kills

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return asdict(self)

    def to_table(self) -> Table:
        """Return the table."""
        table = Table(show_header=False)
        for value, title, unit in (
            (f"{self.fed:,}", "fed", "words, by a direct count over the files"),
            (f"{self.processed:,}", "processed", "words, in the sink"),
            (_flagged(self.lost), "lost", "words"),
            (_flagged(self.duplicated), "duplicated", "words"),
            (f"{self.restarts}", "restarts", "after kill -9"),
            (f"{self.records_per_s:,.0f}", "records/s", "lines, all restarts included"),
            (f"{self.recovery_s:.1f}", "recovery seconds", "restart to first commit, the longest"),
        ):
            table.add_row(title, value, f"[dim]{unit}[/]")
        table.columns[1].justify = "right"
        return table


def _flagged(count: int) -> str:
    return f"[bold {'red' if count else 'green'}]{count:,}[/]"
