"""A backlog of messages of QoS 1 in a broker's session: received durably, against paho alone.

The broker is mosquitto on the same cores; no one publishes meanwhile. Ours is the receiver with its
journal, each message acknowledged when it is durable; the peer is the same client library with its
own acknowledgements and a callback that counts. Once with the broker's in-flight window raised to
10,000, and once with mosquitto's default of 20 (which mosquitto 2.0.11 exceeds by far when many
acknowledgements come at once).
"""

from __future__ import annotations

from functools import partial

from harness import Metric, fresh_process, in_turns, parse_options, report
from harness.mqtt_broker import PAYLOAD_BYTES, fill_session, find_mosquitto, mqtt_broker

_WINDOWS = {10_000: 0.7, 20: None}
"""In-flight window of the broker -> the ratio to reach."""


def main() -> None:
    """Run both sides in turns, for each window."""
    options = parse_options(__doc__)
    program = find_mosquitto()
    if program is None:
        print("  mosquitto is not installed: nothing was measured")
        report("mqtt", [], as_json=options.json)
        return
    messages, rounds = (100_000, 1) if options.quick else (200_000, 3)
    metrics = []
    for window, target in _WINDOWS.items():
        count = messages if window > 20 else messages // 10
        sides = {
            f"{side}, window {window}": partial(_messages_per_s, program, side, window, count)
            for side in ("ours", "peer")
        }
        ours, peer = in_turns(sides, rounds, "messages/s").values()
        name = f"QoS 1, {PAYLOAD_BYTES} bytes, window {window}"
        metrics.append(Metric(name, "messages/s", ours, peer, target))
    report("mqtt", metrics, as_json=options.json)


def _messages_per_s(program: str, side: str, window: int, messages: int) -> float:
    client_id = "bench-r0"
    with mqtt_broker(program, window) as port:
        fill_session(port, client_id, messages)
        found = fresh_process("_mqtt_program.py", side, port, client_id, messages, timeout_s=120)
    return messages / float(found["seconds"])


if __name__ == "__main__":
    main()
