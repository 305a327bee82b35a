"""StreamingContext, put together: its own life, its streams (``sources``), its limits.

``context`` is the class that programs use: set-up, recovery, start and stop. ``life_cycle`` is the
state that it is in, and who waits for its end. ``run_location`` decides where a run keeps its
offsets, ``rate_control`` and ``shutdown`` are what their names say.
"""

from penstock.streaming.context.context import StreamingContext

__all__ = ["StreamingContext"]
