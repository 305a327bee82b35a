"""Files that plots are drawn to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_plot"]

_KINDS = (".png", ".svg")


def write_plot(path: str | Path, draw: Callable[[Figure], None]) -> None:
    """Write what ``draw`` makes of an empty figure to ``path``, which ends with .png or .svg.

    Raises:
        ConfigError: the file's kind is another, it cannot be written, or matplotlib is missing.
    """
    if Path(path).suffix not in _KINDS:
        raise _refused(path, "it is neither PNG nor SVG", "name a file that ends with .png or .svg")
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise _refused(path, "matplotlib is not installed", "pip install 'penstock[plot]'") from e
    figure = Figure(figsize=(8, 6))
    draw(figure)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except OSError as e:
        raise _refused(path, "it cannot be written", "name a file in a folder of yours") from e


def _refused(path: str | Path, why: str, hint: str) -> ConfigError:
    return ConfigError(
        f"the plot cannot be drawn: {why}", operation="draw plot", path=str(path), hint=hint
    )
