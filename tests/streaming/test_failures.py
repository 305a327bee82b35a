"""Which errors of a job have the files of its batch examined: Spark's and penstock's own."""

from __future__ import annotations

import pytest

from penstock.errors import BadRecordError, DamagedBlockError, PenstockError
from penstock.streaming.engine.failures import reason_of

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


def test_a_bad_record_is_told_by_itself() -> None:
    reason = reason_of(RuntimeError("x\npenstock.errors.BadRecordError: line 3\n"), lambda _: None)
    assert isinstance(reason, BadRecordError)
