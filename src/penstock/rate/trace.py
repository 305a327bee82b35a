"""The TRACE level: finer than DEBUG, for what is logged of every batch.

``logging.getLogger("penstock.rate.pid").setLevel("TRACE")`` turns it on.
"""

from __future__ import annotations

import logging

__all__ = ["TRACE"]

TRACE = 5
"""Below logging.DEBUG; 5 is what other libraries use, so a handler's filter fits them all."""

logging.addLevelName(TRACE, "TRACE")
