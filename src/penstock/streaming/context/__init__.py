"""StreamingContext: its life cycle, its streams (``sources``) and its limits.

``context`` is the class that programs use: set-up, recovery, start and stop. ``life_cycle`` holds
its state and wakes waiting threads at its end. ``run_location`` decides where a run keeps its
offsets, and ``rate_control`` sets limits.
"""

from penstock.streaming.context.context import StreamingContext

__all__ = ["StreamingContext"]
