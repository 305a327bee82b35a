"""One consumer of a session's backlog. Usage: _mqtt_program.py ours|peer PORT CLIENT_ID MESSAGES.

Prints the seconds from the start of its connection to the last message: durable, or received.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import uuid

import paho.mqtt.client as paho
from harness.mqtt_broker import TOPIC

from penstock.journal import JournalStream, RecordFormat, StreamProgress, advance
from penstock.receivers import (
    Command,
    MqttReceiver,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    claim_run,
    give_command,
)
from penstock.storage import open_storage

_LOOK_S = 0.01


def main() -> None:
    """Run one side."""
    side, port, client_id, messages = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    consume = {"ours": _ours, "peer": _peer}[side]
    print(json.dumps({"seconds": consume(port, client_id, messages)}))


def _ours(port: int, client_id: str, messages: int) -> float:
    """Receive into a journal, as an executor does."""
    prefix, _, name = client_id.rpartition("-")
    receiver = MqttReceiver("127.0.0.1", port, TOPIC, client_id=prefix)
    with tempfile.TemporaryDirectory() as folder:
        stream = JournalStream.create(
            open_storage(folder), "messages", RecordFormat(receiver.schema)
        )
        run = claim_run(stream, name, uuid.uuid4().hex, Command())
        task = ReceiverTask(receiver, stream, name, run, ReceiverSettings())
        supervisor = threading.Thread(target=ReceiverSupervisor(task).run)
        progress = StreamProgress(stream)
        start_s = time.monotonic()
        supervisor.start()
        while sum(advance({}, progress.ends({})).values()) < messages:
            time.sleep(_LOOK_S)
        seconds = time.monotonic() - start_s
        give_command(stream, name, run, Command(stop=True))
        supervisor.join()
    return seconds


def _peer(port: int, client_id: str, messages: int) -> float:
    """Receive with paho alone, which acknowledges each message and stores nothing."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
    left = messages

    def count(client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        nonlocal left
        left -= 1
        if not left:
            client.disconnect()

    client.on_message = count
    start_s = time.monotonic()
    client.connect("127.0.0.1", port)
    client.loop_forever()
    return time.monotonic() - start_s


if __name__ == "__main__":
    main()
