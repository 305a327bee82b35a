"""The host of a receiver, on an executor or in a separate process.

ReceiverSupervisor     the one thread that decides; the host that the receiver's threads call
├ HostedReceiver       calls of onStart, onPause, onResume, onStop; they may hang or raise
├ Watch                events from outside: commands, the parent process, a later attempt
├ Intake               a store's way to the writer: counted, charged to the rate limit
├ RenewableWriter      the journal writer, replaced when it broke, and its quota
└ StatusReport         the status for the driver
"""

from penstock.receivers.supervisor.events import End
from penstock.receivers.supervisor.supervisor import ReceiverSupervisor, run_receiver
from penstock.receivers.supervisor.thread_errors import uncaught_errors_to

__all__ = ["End", "ReceiverSupervisor", "run_receiver", "uncaught_errors_to"]
