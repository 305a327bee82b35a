"""What tests of penstock stand on, for users' tests too: time, faults and crashes as input.

``penstock.testing.rate_simulator`` and ``rate_measures`` try estimators of rates.
``penstock.testing.stepper`` steps whole streaming programs; it is imported by itself, because it
needs Spark and nothing else here does.
"""

from penstock.testing.crash_states import CrashState, RecordingSyscalls, Step, crash_states
from penstock.testing.faulty_storage import FaultyStorage, Operation, OperationKind
from penstock.testing.faulty_syscalls import FailingSyscalls
from penstock.testing.manual_clock import ManualClock
from penstock.testing.recording_host import RecordingHost

__all__ = [
    "CrashState",
    "FailingSyscalls",
    "FaultyStorage",
    "ManualClock",
    "Operation",
    "OperationKind",
    "RecordingHost",
    "RecordingSyscalls",
    "Step",
    "crash_states",
]
