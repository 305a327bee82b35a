"""The TRACE level: finer than DEBUG, for messages about every batch.

``logging.getLogger("penstock.rate.pid").setLevel("TRACE")`` turns it on.
"""

from __future__ import annotations

import logging

__all__ = ["TRACE"]

TRACE = 5
"""Below logging.DEBUG; other libraries also use 5, so one handler's filter works for all."""

logging.addLevelName(TRACE, "TRACE")
