"""What docs/faq.md says about streams is so."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest
from pyspark import SparkContext

from penstock.streaming import StreamingContext
from tests.docs.pages import ROOT


@pytest.mark.spark
def test_the_streams_that_have_foreach_batch(sc: SparkContext, tmp_path: Path) -> None:
    ssc = StreamingContext(sc, 1)
    numbers = ssc.queueStream([[1]])
    lines = ssc.tailStream(str(tmp_path / "a"))
    brokers = {"bootstrap.servers": "127.0.0.1:1"}
    streams = {
        "tailStream": lines,
        "socketTextStream": ssc.socketTextStream("127.0.0.1", 1),
        "socketStream": ssc.socketStream("127.0.0.1", 1),
        "httpStream": ssc.httpStream(0),
        "mqttStream": ssc.mqttStream("127.0.0.1", 1, ["t"]),
        "kafkaStream": ssc.kafkaStream("t", brokers),
        "textFileStream": ssc.textFileStream(str(tmp_path)),
        "fileStream": ssc.fileStream(str(tmp_path)),
        "binaryRecordsStream": ssc.binaryRecordsStream(str(tmp_path), 4),
        "queueStream": numbers,
        "union": lines.union(lines),
        "window": lines.window(2),
        "map": lines.map(str),
        "parse": lines.parse(int),
    }
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]*`[^|]*) \| (yes|no)\b", page, re.MULTILINE)
    told = {name: word == "yes" for cell, word in rows for name in re.findall(r"`(\w+)`", cell)}
    has = {name: stream.has_columns() for name, stream in streams.items()}
    assert {name: told[name] for name in has} == has


def test_the_arguments_of_http_stream() -> None:
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    section = page.partition("## Arguments")[2].partition("`HttpReceiver`")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert listed == list(signature(StreamingContext.httpStream).parameters)[1:]
