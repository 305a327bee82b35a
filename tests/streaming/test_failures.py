"""What is told of a job's error, and for which ones the files of its batch are examined."""

from __future__ import annotations

import json

import pytest

from penstock.errors import (
    BadRecordError,
    DamagedBlockError,
    PenstockError,
    UnreadableRecordError,
)
from penstock.streaming.core.batch import Batch
from penstock.streaming.engine.failures import batch_failed, reason_of
from penstock.streaming.engine.root_cause import root_cause

OF_USERS = [
    "FileNotFoundError: [Errno 2] No such file or directory: '/models/7.bin'",
    "PythonException: Traceback ... \nFileNotFoundError: model",
    "myapp.errors.DamagedBlockError: block of the chain",
]
OF_READERS = [
    "Job aborted: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file:/j/0.parquet",
    "Caused by: java.io.FileNotFoundException: File file:/inbox/a does not exist",
    "org.apache.hadoop.mapred.InvalidInputException: Input path does not exist: file:/inbox/a",
    "PythonException: Traceback ...\npenstock.errors.MissingBlockError: records [0, 1) are not",
]


@pytest.mark.parametrize("text", OF_USERS)
def test_a_users_own_error_has_nothing_examined(text: str) -> None:
    def find_damage(error: str) -> PenstockError | None:
        raise AssertionError("examined")

    error = RuntimeError(text)
    assert reason_of(error, find_damage) is error


@pytest.mark.parametrize("text", OF_READERS)
def test_an_error_of_a_reader_is_explained(text: str) -> None:
    damage = DamagedBlockError("a block is damaged")
    error = RuntimeError(text)
    asked: list[str] = []

    def find_damage(error: str) -> PenstockError | None:
        asked.append(error)
        return damage

    assert reason_of(error, find_damage) is damage
    assert damage.cause is error
    assert asked == [text]


@pytest.mark.parametrize("kind", [BadRecordError, UnreadableRecordError])
def test_a_bad_record_is_told_by_itself(kind: type[PenstockError]) -> None:
    text = f"x\npenstock.errors.{kind.__name__}: line 3\n"
    reason = reason_of(RuntimeError(text), lambda _: None)
    assert (type(reason), reason.args) == (kind, ("line 3",))


WORKER = """An error occurred while calling o7.collect.
: org.apache.spark.SparkException: Job aborted: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/spark/pyspark/worker.py", line 9, in main
    process()
KeyError: 'first'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 9, in main
    process()
  File "/home/kim/job.py", line 12, in parse
    return json.loads(line)
           ^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.11/json/__init__.py", line 346, in loads
    return _default_decoder.decode(s)
myjob.BadPage: page \x1b[31m is
Traceback of no one

\tat org.apache.spark.api.python.BasePythonRunner.hasNext(PythonRunner.scala:1)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
ValueError: another task's
"""
JAVA = """An error occurred while calling o55.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: wrapped
\tat java.base/java.lang.Thread.run(Thread.java:1)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/java.lang.Thread.run(Thread.java:1)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WORKER, r"myjob.BadPage: page \x1b[31m is, at /home/kim/job.py:12"),
        (JAVA, "java.net.ConnectException: Connection refused"),
        ("first\nsecond", "RuntimeError: first"),
    ],
    ids=["worker", "java", "driver"],
)
def test_the_root_cause_is_one_line(text: str, told: str) -> None:
    assert root_cause(RuntimeError(text)) == told
    error = batch_failed("job 1 failed", Batch(3, 1000, ()), RuntimeError(text))
    begin = f"job 1 failed: {told} [operation=run batch batch=3] Hint: the batch stays uncommitted"
    assert str(error).startswith(begin)
    assert "\n" not in str(error)


def test_the_place_is_the_users_also_where_a_library_raised() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    line = raised.traceback[0].lineno + 1
    assert root_cause(raised.value).endswith(f", at {__file__}:{line}")
