"""How many followed files may be open at a time."""

from __future__ import annotations

import errno


class TooManyFilesError(OSError):
    """No further file may be opened for now."""

    def __init__(self, most: int) -> None:
        super().__init__(errno.EMFILE, f"{most} files are open, and no more may be")


class OpenFiles:
    """Counts open files; not thread-safe.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0

    def add(self) -> None:
        """Count one more.

        Raises:
            TooManyFilesError: there are as many as there may be.
        """
        if self._count >= self.most:
            raise TooManyFilesError(self.most)
        self._count += 1

    def remove(self) -> None:
        """Count one less."""
        self._count -= 1
