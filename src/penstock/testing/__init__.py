"""What tests of penstock stand on, for users' tests too: faults, and crashes, as input."""

from penstock.testing.crash_states import CrashState, RecordingSyscalls, Step, crash_states
from penstock.testing.faulty_storage import FaultyStorage, Operation, OperationKind
from penstock.testing.faulty_syscalls import FailingSyscalls

__all__ = [
    "CrashState",
    "FailingSyscalls",
    "FaultyStorage",
    "Operation",
    "OperationKind",
    "RecordingSyscalls",
    "Step",
    "crash_states",
]
