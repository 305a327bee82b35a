"""What is told of a job's error, and for which ones the files of its batch are examined."""

from __future__ import annotations

import json

import pytest

from penstock.errors import (
    BadRecordError,
    DamagedBlockError,
    PenstockError,
    UnreadableRecordError,
    printable,
)
from penstock.root_cause import root_cause
from penstock.streaming.core.batch import Batch
from penstock.streaming.engine.program_end import batch_failed, reason_of

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


def test_an_input_that_cannot_be_examined_leaves_the_jobs_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def find_damage(error: str) -> PenstockError | None:
        raise RuntimeError("the folder cannot be listed")

    error = RuntimeError(OF_READERS[0])
    assert reason_of(error, find_damage) is error
    assert "could not be examined" in caplog.text


TRACE = 'Traceback (most recent call last):\n  File "/app/job.py", line 7, in double\n    call()\n'


@pytest.mark.parametrize("kind", [BadRecordError, UnreadableRecordError])
def test_a_bad_record_is_told_by_itself(kind: type[PenstockError]) -> None:
    text = f"x\n{TRACE}penstock.errors.{kind.__name__}: line 3\n"
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
    assert str(error).startswith(
        f"job 1 failed: {told}. Hint: start the program again when the cause is fixed"
    )
    assert str(error).endswith("[operation=run batch batch=3]")
    assert "\n" not in str(error)


def test_the_place_is_the_users_also_where_a_library_raised() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    line = raised.traceback[0].lineno + 1
    assert root_cause(raised.value).endswith(f", at {__file__}:{line}")


def test_a_message_forges_no_bad_record() -> None:
    error = RuntimeError(f"x\n{TRACE}ValueError: two\npenstock.errors.BadRecordError: forged\n")
    assert reason_of(error, lambda _: None) is error


class RaisesError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class ExitsError(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class NoTextError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class BadNotesError(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError


def odd_syntax_error() -> SyntaxError:
    return SyntaxError("m", ("f.py", 1, "text", "no number"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [RaisesError(), ExitsError(), NoTextError(), BadNotesError(), odd_syntax_error()]
)
def test_an_error_that_cannot_be_formatted_is_told_by_its_type(error: Exception) -> None:
    told = printable(error)
    text = str(batch_failed("job x failed", Batch(0, 1000, ()), told))
    assert f"a {type(error).__name__} was raised, whose text cannot be formatted" in text
    within = ValueError("within")
    within.__cause__ = error
    assert "ValueError: within" in str(batch_failed("job", Batch(0, 1000, ()), within))


def test_many_causes_and_odd_characters_stay_one_short_line() -> None:
    error = ValueError("a\udcffb\u2028c\u202ed")
    for number in range(3000):
        cause, error = error, ValueError(f"cause {number}")
        error.__cause__ = cause
    text = str(batch_failed("job x failed", Batch(0, 1000, ()), error))
    assert len(text.splitlines()) == 1
    assert len(text) < 1000
    assert "cause 2999" in text
    assert "Cause: ValueError: a\\udcffb\\u2028c\\u202ed." in text


def test_causes_in_a_circle_end() -> None:
    error, other = ValueError("one"), ValueError("other")
    error.__cause__, other.__cause__ = other, error
    assert "Cause: ValueError: other." in str(batch_failed("job", Batch(0, 1000, ()), error))
