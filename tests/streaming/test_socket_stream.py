"""socketStream on Spark: records after their length, over connections that end."""

from __future__ import annotations

import socket

import pytest

from penstock.receivers import read_status
from penstock.streaming import StreamingContext
from tests.streaming.runs import Runs
from tests.waiting import WAIT_S

pytestmark = pytest.mark.spark


def test_records_over_two_connections_have_one_writer(runs: Runs) -> None:
    seen: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(WAIT_S)

    def define(ssc: StreamingContext) -> None:
        stream = ssc.socketStream(*server.getsockname(), lengthBytes=2, name="frames")
        stream.foreachRDD(lambda time, rdd: seen.extend(rdd.collect()))

    with server, runs.running_program(define) as stepper:
        for record in (b"one\0", b""):
            connection, _ = server.accept()
            with connection:
                connection.sendall(len(record).to_bytes(2, "big") + record)
        journal = runs.journal("frames")
        (writer,) = journal.writers()
        runs.wait_durable(2, "frames")
        stepper.step()
        status = read_status(journal, "r0")
        assert status is not None
        assert status.errors >= 1
        assert "closed the connection; connecting again in" in str(status.last_error)
    assert seen == [b"one\0", b""]
    assert journal.writers() == [writer], "a new connection needs no new writer"
