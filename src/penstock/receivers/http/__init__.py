"""The HTTP receiver: POST records, and get an answer once they are durable.

acceptor     connections from accept on: number, handshakes, descriptors
connection   limits of a connection: time, size of a head, number    (uvicorn's protocol)
application  a request's way from its head to its answer              (ASGI)
head         what a request's head says                               pure
content      bytes as sent to bytes as meant: gzip, with its cap      pure
record_limits  how many records, and how large                        pure
bodies       bytes to records; json_text: JSON                        pure
stores       a request's records on their way through the journal; acks
keys         Idempotency-Key: who was answered what                   pure
key_window   the same, durable with the records
server       the thread with the event loop
receiver     what a host runs
"""

from penstock.receivers.http.receiver import HttpReceiver

__all__ = ["HttpReceiver"]
