"""docs/tutorials/kafka-to-kafka.md works as written, but for paths and the brokers' address."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.docs.pages import blocks, program, shell
from tests.kafka.broker import Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = "tutorials/kafka-to-kafka.md"


@pytest.mark.storm
def test_each_invoice_is_written_once(
    sc: SparkContext, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(text: str) -> str:
        text = text.replace("localhost:9092", broker.address)
        return text.replace("/tmp/invoices", str(tmp_path))

    topics, invoices, read = (here(each) for each in blocks(PAGE, "python"))
    exec(topics, {})
    expected = "['ada pays 50', 'kim pays 10', 'kim pays 30']"

    def is_read() -> bool:
        exec(read, {})
        return expected in capsys.readouterr().out

    for _ in range(2):
        with program(invoices, sc) as running:
            running.wait_for(is_read)
    assert is_read()  # still, after both have stopped
    printed = shell([here(each) for each in blocks(PAGE, "bash")], tmp_path)
    assert "lag in all: 0" in printed
