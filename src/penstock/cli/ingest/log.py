"""Where the ingest process logs: coloured on a terminal, plain lines for files and journald."""

from __future__ import annotations

import logging
import sys

from rich.logging import RichHandler

__all__ = ["log_to_stderr"]


def log_to_stderr() -> None:
    """Log what penstock does, and warnings of everybody else."""
    handler: logging.Handler
    if sys.stderr.isatty():
        handler = RichHandler(show_path=False, log_time_format="%H:%M:%S")
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("penstock").setLevel(logging.INFO)
