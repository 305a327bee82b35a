"""socketStream on Spark: records after their length, over connections that end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.journal import JournalStream
from penstock.receivers import read_status
from penstock.storage import open_storage
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


def test_records_over_two_connections_have_one_writer(
    sc: SparkContext, clock: ManualClock, tmp_path: Path
) -> None:
    ssc = StreamingContext.getOrCreate(
        str(tmp_path), lambda: StreamingContext(sc, 1, clock=clock), recover="program"
    )
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_S)
        stream = ssc.socketStream(*server.getsockname(), lengthBytes=2, name="frames")
        stream.foreachRDD(lambda time, rdd: seen.extend(rdd.collect()))
        stepper = Stepper(ssc, clock)
        ssc.start()
        try:
            for record in (b"one\0", b""):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(len(record).to_bytes(2, "big") + record)
            journal = JournalStream.open(open_storage(tmp_path / "journal"), "frames")
            (writer,) = journal.writers()
            assert eventually(
                lambda: (newest := journal.newest(writer)) is not None and newest.end_offset == 2
            )
            stepper.step()
            status = read_status(journal, "r0")
            assert status is not None
            assert status.errors >= 1
            assert "closed the connection; connecting again in" in str(status.last_error)
        finally:
            ssc.stop(stopSparkContext=False)
    assert seen == [b"one\0", b""]
    assert journal.writers() == [writer], "a new connection needs no new writer"
