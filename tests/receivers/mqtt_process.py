"""Receives from MQTT into a journal until its process is killed, or it is commanded to stop."""

from __future__ import annotations

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


def receive(journal: str, port: int, qos: int, version: str) -> None:
    receiver = MqttReceiver(
        "127.0.0.1", port, "plant/#", qos=qos, version=version, client_id="killed"
    )
    stream = JournalStream.create(open_storage(journal), "mqtt", RecordFormat(receiver.schema))
    run = claim_run(stream, "r0", uuid.uuid4().hex, Command())
    run_receiver(ReceiverTask(receiver, stream, "r0", run, ReceiverSettings(poll_ms=20)))
