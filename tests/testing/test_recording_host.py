"""RecordingHost: what users' receiver tests lean on."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from penstock.receivers import Receiver
from penstock.testing import RecordingHost
from tests.waiting import WAIT_S


class Idle(Receiver):
    """Does nothing by itself; tests call its methods."""

    def onStart(self) -> None:
        pass

    def onStop(self) -> None:
        pass


def test_records_every_kind_of_store_with_its_position_and_runs_acks() -> None:
    host, receiver, acks = RecordingHost("old"), Idle(), []
    with host.run(receiver):
        assert receiver.lastPosition() == "old"
        receiver.store("text", ack=lambda: acks.append(1))
        receiver.store(["a", "b"], position=7)
        receiver.store(pa.record_batch({"value": ["c", "d"]}))
        receiver.store({"x": 1})
    assert [stored.records for stored in host.stores] == [
        ["text"],
        ["a", "b"],
        ["c", "d"],
        [{"x": 1}],
    ]
    assert host.records == ["text", "a", "b", "c", "d", {"x": 1}]
    assert (acks, receiver.lastPosition()) == ([1], 7)


def test_an_unannounced_report_fails_the_wait_at_once_with_its_cause() -> None:
    host, receiver = RecordingHost(), Idle()
    with host.run(receiver):
        receiver.reportError("disk on fire", OSError("smoke"))
        with pytest.raises(AssertionError, match="disk on fire") as caught:
            host.wait_for_records(1)
    assert isinstance(caught.value.__cause__, OSError)


def test_a_restart_or_stop_is_recorded_and_stops() -> None:
    host, receiver = RecordingHost(expect_errors=True), Idle()
    for ask, reports in [(receiver.restart, host.restarts), (receiver.stop, host.stops)]:
        with host.run(receiver):
            assert not receiver.isStopped()
            ask("enough")
            assert receiver.isStopped()
        assert [report.message for report in reports] == ["enough"]


def test_a_scripted_error_is_raised_and_nothing_is_recorded() -> None:
    host, receiver, acks = RecordingHost(), Idle(), []
    with host.run(receiver):
        host.fail_stores(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            receiver.store("lost", ack=lambda: acks.append(1))
        host.fail_stores(None)
        receiver.store("kept")
    assert (host.records, acks) == (["kept"], [])


def test_blocked_stores_go_on_when_unblocked_or_stopped() -> None:
    host, receiver = RecordingHost(), Idle()
    with host.run(receiver):
        for release in (host.unblock_stores, host.request_stop):
            host.block_stores()
            storing = threading.Thread(target=receiver.store, args=("record",))
            storing.start()
            before = len(host.records)
            release()
            storing.join(WAIT_S)
            assert len(host.records) == before + 1
