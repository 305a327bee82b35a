"""The files under a checkpoint path, and the text in them. Pure.

    <path>/
      dirty_bit                              records were read that no checkpoint holds yet; empty
      write-ahead-logs/<topic>/<p>.txt       5: the last offset of partition p that was read
      <topic>/<N>.txt                        {"0": 5, "1": 4}: the last offset that is done,
                                             by partition, when the N-th checkpoint was made
      driver.lock                            the program that uses the path (local file systems)

Offsets in files are inclusive, as in the proposal that this layout is from: the last record that
was read, or processed. Everything else in penstock counts ends, which are exclusive: ``parse_*``
and ``dump_*`` translate. -1 says that nothing of a partition is done, and that it was there: what
is deleted of it before it is read is lost. A partition that is not in a checkpoint is new.

``0.txt`` is there until a topic has its first checkpoint, and says where its first batch begins.

Source: python-streamz issue 279, "Checkpointing".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from penstock.checkpoint.driver_lock import LOCK_NAME
from penstock.errors import ConfigError

DIRTY_BIT = "dirty_bit"
LOGS = "write-ahead-logs"
_RESERVED = (DIRTY_BIT, LOGS, LOCK_NAME)
_NUMBER = re.compile(r"(0|[1-9][0-9]*)\.txt")
_UNQUOTED = re.compile(r"([{,]\s*)([0-9]+)(\s*:)")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_OFFSET = 2**63 - 1


def check_topics(topics: Iterable[str]) -> None:
    """Refuse a topic whose folder would stand in the place of another file.

    Raises:
        ConfigError: its name is reserved.
    """
    for topic in topics:
        if topic in _RESERVED:
            raise ConfigError(
                f"a topic named {topic!r} cannot have checkpoints: the checkpoint path has a file "
                "or folder of that name",
                operation="from_kafka_batched",
                ids={"topic": topic},
                hint="copy its records to a topic of another name, or leave checkpoint_path out",
            )


def checkpoint_path(topic: str, number: int) -> str:
    """Return the path of a topic's N-th checkpoint."""
    return f"{topic}/{number}.txt"


def checkpoint_number(name: str) -> int | None:
    """Return N of a file's name ``<N>.txt``, None for any other name."""
    found = _NUMBER.fullmatch(name)
    return None if found is None else int(found[1])


def log_path(topic: str, partition: int) -> str:
    """Return the path of a partition's log."""
    return f"{LOGS}/{topic}/{partition}.txt"


def dump_checkpoint(ends: Mapping[int, int]) -> bytes:
    """Return the text of a checkpoint of ends by partition."""
    return json.dumps({str(p): end - 1 for p, end in sorted(ends.items())}).encode()


def parse_checkpoint(data: bytes) -> dict[int, int]:
    """Return the ends by partition of a checkpoint's text, with quoted partitions or without.

    Raises:
        ValueError: it is not the text of a checkpoint; says why.
    """
    text = data.decode()
    if not text.strip():
        raise ValueError("it is empty")
    try:
        found = json.loads(_UNQUOTED.sub(r'\1"\2"\3', text), object_pairs_hook=_unique)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - as all that is wrong with it
    for partition, offset in found.items():
        if not _DECIMAL.fullmatch(partition):
            raise ValueError(f"{partition!r} is not a partition")
        if type(offset) is not int or not -1 <= offset < _MAX_OFFSET:
            raise ValueError(f"{offset!r} is not an offset")
    return {int(partition): offset + 1 for partition, offset in found.items()}


def dump_log(end: int) -> bytes:
    """Return the text of a partition's log that was read up to ``end``."""
    return str(end - 1).encode()


def parse_log(data: bytes) -> int:
    """Return the end of a partition's log.

    Raises:
        ValueError: it is not the text of a log.
    """
    text = data.decode().strip()
    if not text.isdecimal():
        raise ValueError(f"{text[:100]!r} is not an offset")
    return int(text) + 1


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a partition is given twice")
    return found
