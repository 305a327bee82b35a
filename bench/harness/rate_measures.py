"""How well a rate was kept: the figures that the tests of estimators have, too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from tests.rate.measures import (
    batches_until_stable,
    overshoot,
    peak_scheduling_delay_ms,
    utilisation,
)

__all__ = ["batches_until_stable", "overshoot", "peak_scheduling_delay_ms", "utilisation"]
