"""For tests of programs: time that a test moves, and a host that records what a receiver does.

``penstock.testing.stepper`` steps whole streaming programs; it is imported by itself, because it
needs Spark and nothing else here does.
"""

from penstock.testing.manual_clock import ManualClock
from penstock.testing.recording_host import RecordingHost

__all__ = ["ManualClock", "RecordingHost"]
