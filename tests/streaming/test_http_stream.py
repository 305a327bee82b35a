"""httpStream end to end on Spark: clients post, batches see it, also after a restart."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame

from penstock.errors import ConfigError
from penstock.receivers import read_status
from penstock.streaming import StreamingContext
from penstock.streaming.inputs.receiver_input import ReceiverInputDStream
from tests.streaming.runs import Runs
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


def listening_at(stream: ReceiverInputDStream) -> str:
    found: list[str] = []

    def is_known() -> bool:
        status = read_status(stream.journal, "r0")
        if status is not None and status.state == "started":
            found.extend(filter(None, [status.listening_at]))
        return bool(found)

    assert eventually(is_known)
    return found[0]


def test_posted_records_are_processed_once_also_over_a_restart(runs: Runs) -> None:
    rows: list[Any] = []
    streams: list[Any] = []

    def collect(df: DataFrame, batch_id: int) -> None:
        rows.extend(map(tuple, df.collect()))

    def define(ssc: StreamingContext) -> None:
        streams.append(ssc.httpStream(0, schema="id int64, name string", name="events"))
        streams[-1].foreachBatch(collect)

    def post(url: str, key: str) -> Any:
        headers = {"content-type": "application/x-ndjson", "idempotency-key": key}
        body = b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n'
        found = httpx.post(url, content=body, headers=headers, timeout=WAIT_S)
        assert found.status_code == 200
        return found.json()

    answers = []
    for key in ("first", "second"):
        with runs.running_program(define, stopGraceFully=True) as stepper:
            url = listening_at(streams[-1])
            answers.append(post(url, "first"))
            post(url, key)
            stepper.step()
    assert answers[0] == answers[1]
    assert rows == [(1, "a"), (2, "b")] * 2


def test_an_http_stream_refuses_what_cannot_work(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1)
    with pytest.raises(ConfigError, match="token_file"):
        ssc.httpStream(8080, host="0.0.0.0")
    ssc.stop(stopSparkContext=False)
