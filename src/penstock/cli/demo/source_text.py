"""The demo's input: the source text that comes with every Python."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.errors import ConfigError

__all__ = ["SourceText", "source_files"]


def source_files() -> list[Path]:
    """Return the sources of the standard library and of the installed packages, in stable order."""
    paths = sysconfig.get_paths()
    folders = dict.fromkeys(Path(paths[key]).resolve() for key in ("stdlib", "purelib", "platlib"))
    # Outside a virtual environment the packages lie within the standard library's folder.
    return list(dict.fromkeys(file for each in folders for file in sorted(each.rglob("*.py"))))


class SourceText:
    """The text of files one after the other, and again from the first when the last is read.

    Files that are empty, not UTF-8 or not readable are left out. A file that does not end in a line
    end is given one.

    Raises:
        ConfigError: there is no text in any of the files.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._texts = _endless(files)
        self._text = next(self._texts)
        self._at = 0

    def read(self, size: int) -> bytes:
        """Return the next bytes: at most ``size``, and at least one."""
        if self._at == len(self._text):
            self._text, self._at = next(self._texts), 0
        piece = self._text[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def read_to_line_end(self) -> bytes:
        """Return the rest of the line that ``read`` stopped in; nothing between two lines."""
        if self._at == 0 or self._text.startswith(b"\n", self._at - 1):
            return b""
        return self.read(self._text.index(b"\n", self._at) + 1 - self._at)


def _endless(files: Sequence[Path]) -> Iterator[bytes]:
    while True:
        usable = False
        for file in files:
            if text := _text_of(file):
                usable = True
                yield text
        if not usable:
            raise ConfigError(
                f"none of {len(files)} source files holds text",
                operation="feed text",
                hint="the demo needs a Python whose standard library is installed as .py files",
            )


def _text_of(file: Path) -> bytes:
    try:
        text = file.read_bytes()
        text.decode()
    except (OSError, UnicodeDecodeError):
        return b""
    return text if not text or text.endswith(b"\n") else text + b"\n"
