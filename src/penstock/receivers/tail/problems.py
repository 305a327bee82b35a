"""Problems that last: told once, and again only after they were over."""

from __future__ import annotations

from collections.abc import Callable, Hashable

Report = Callable[[str, BaseException | None], None]
"""Takes a message and its cause, as ``Receiver.reportError`` does."""


class Problems:
    """Keeps a receiver that polls from reporting the same trouble at every poll."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._open: set[Hashable] = set()

    def tell(self, key: Hashable, message: str, error: BaseException | None = None) -> None:
        """Report unless this key was told since it was last settled."""
        if key not in self._open:
            self._open.add(key)
            self.report(message, error)

    def settle(self, key: Hashable) -> None:
        """Take note that this problem is over."""
        self._open.discard(key)
