"""How the demo looks while it runs: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from penstock.cli.demo.progress import Progress

__all__ = ["View", "open_view"]

_PLAIN_PERIOD_S = 2.0


class View(ABC):
    """Shows progress and events. A context: it takes hold of the terminal, and gives it back."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_s = time.monotonic()

    def event(self, text: str) -> None:
        """Print a line that stays."""
        line = f"[dim]{self._elapsed_s():6.1f} s[/]  {text}"
        self._console.print(line, highlight=False, soft_wrap=True)

    @abstractmethod
    def update(self, progress: Progress) -> None:
        """Show how far it is; called several times a second."""

    def __enter__(self) -> View:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s


class _PlainView(View):
    """One line every few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._shown_s = 0.0

    def update(self, progress: Progress) -> None:
        if self._elapsed_s() - self._shown_s < _PLAIN_PERIOD_S:
            return
        self._shown_s = self._elapsed_s()
        facts = ", ".join(f"{name} {value}" for name, value in _facts(progress).items())
        self.event(facts)


class _LiveView(View):
    """The feeder's bar and a row of figures, kept at the bottom of the terminal."""

    def __init__(self, console: Console, total_bytes: int) -> None:
        super().__init__(console)
        self._bar = Bar(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            DownloadColumn(),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("feeding", total=total_bytes)
        self._live = Live(console=console, refresh_per_second=10, transient=True)

    def __enter__(self) -> View:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def update(self, progress: Progress) -> None:
        what = "fed" if progress.fed_all else f"feeding {progress.file}"
        total = progress.fed_bytes if progress.fed_all else None
        self._bar.update(self._task, description=what, completed=progress.fed_bytes, total=total)
        layout = Table.grid(expand=True)
        layout.add_row(self._bar)
        layout.add_row(_figures(progress))
        self._live.update(layout)


def open_view(console: Console, total_bytes: int) -> View:
    """Return the view that fits the console."""
    return _LiveView(console, total_bytes) if console.is_terminal else _PlainView(console)


def _facts(progress: Progress) -> dict[str, str]:
    delay = "-" if progress.delay_ms is None else f"{progress.delay_ms / 1000:.1f} s"
    return {
        "records": f"{progress.committed_lines:,} lines",
        "rate": f"{progress.recent_lines_per_s(time.monotonic()):,.0f} lines/s",
        "delay": delay,
        "backlog": f"{progress.backlog_lines:,} lines",
        "restarts": f"{progress.restarts}",
    }


def _figures(progress: Progress) -> Table:
    facts = _facts(progress)
    table = Table(expand=True)
    for name in facts:
        table.add_column(name, justify="right", ratio=1)
    table.add_row(*facts.values())
    return table
