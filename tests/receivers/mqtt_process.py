"""A process that receives from MQTT into a journal until it is killed, or commanded to stop.

python mqtt_process.py JOURNAL_DIR PORT QOS VERSION
"""

from __future__ import annotations

import sys
import uuid

from penstock.journal import JournalStream, RecordFormat
from penstock.receivers import (
    Command,
    MqttReceiver,
    ReceiverSettings,
    ReceiverTask,
    claim_run,
    run_receiver,
)
from penstock.storage import open_storage


def main(journal: str, port: str, qos: str, version: str) -> None:
    receiver = MqttReceiver(
        "127.0.0.1", int(port), "plant/#", qos=int(qos), version=version, client_id="killed"
    )
    stream = JournalStream.create(open_storage(journal), "mqtt", RecordFormat(receiver.schema))
    run = claim_run(stream, "r0", uuid.uuid4().hex, Command())
    run_receiver(ReceiverTask(receiver, stream, "r0", run, ReceiverSettings(poll_ms=20)))


if __name__ == "__main__":
    main(*sys.argv[1:])
