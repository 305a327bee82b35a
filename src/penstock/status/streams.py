"""The streams of a journal: what they hold, who writes, who reads, and what was lost."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.journal import Bounds, JournalStream, stream_names
from penstock.journal.bad_records.dead_letters import dead_letter_folders
from penstock.journal.lag import records_behind
from penstock.journal.layout import WriterId, parse_writer
from penstock.journal.losses.loss_log import Loss, lost_ranges, read_losses
from penstock.model import Offsets
from penstock.status.blocks import Published, oldest_untaken, published_blocks
from penstock.status.model import (
    MOST_LOSSES,
    ConsumerStatus,
    LossStatus,
    Process,
    ReceiverStatus,
    StreamStatus,
    WriterStatus,
)
from penstock.status.stream_facts import (
    ConsumerFacts,
    ReceiverFacts,
    WriterFacts,
    read_stream_facts,
)
from penstock.storage import Storage

_WINDOW_S = 60


@dataclass(frozen=True, slots=True)
class ReadStreams:
    """The streams of a journal, and what could not be read of it."""

    streams: tuple[StreamStatus, ...] = ()
    blocks: Mapping[str, Mapping[str, Published]] = field(default_factory=dict)
    """Stream -> writer -> when its blocks were published."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Stream or Kafka input -> refused records that wait for a replay."""
    problems: tuple[str, ...] = ()

    def lag(self, taken: Mapping[str, Offsets], now_ms: int) -> tuple[int, int | None] | None:
        """Return how many records come after the offsets, by stream, and the age of the oldest.

        None where this journal is not the one of the offsets.
        """
        ends = {each.name: _ends(each) for each in self.streams}
        if not taken or not taken.keys() <= ends.keys():
            return None
        records = sum(records_behind(ends[name], offsets) for name, offsets in taken.items())
        times = [oldest_untaken(self.blocks[name], offsets) for name, offsets in taken.items()]
        oldest_ms = min((each for each in times if each is not None), default=None)
        return records, None if oldest_ms is None else max(now_ms - oldest_ms, 0)


def read_streams(journal: Storage, now_ms: int) -> ReadStreams:
    """Return the streams of a journal; what cannot be read is named, and hides nothing else."""
    streams: list[StreamStatus] = []
    blocks: dict[str, Mapping[str, Published]] = {}
    problems: list[str] = []
    try:
        names = stream_names(journal)
        letters = {each.source: each.count_waiting() for each in dead_letter_folders(journal)}
    except PenstockError as error:
        return ReadStreams(problems=(str(error),))
    for name in names:
        try:
            found, blocks[name] = _read(JournalStream.open(journal, name), now_ms)
            streams.append(found)
        except PenstockError as error:
            problems.append(str(error))
    return ReadStreams(tuple(streams), blocks, letters, tuple(problems))


def loss_statuses(stream: str, losses: Sequence[Loss]) -> tuple[LossStatus, ...]:
    """Return the newest entries of a loss log, newest first."""
    newest = sorted(losses, key=lambda loss: loss.when, reverse=True)[:MOST_LOSSES]
    return tuple(
        LossStatus(
            stream,
            each.records.partition,
            each.records.start_offset,
            each.records.end_offset,
            each.records.count,
            each.reason,
            each.who,
            each.host,
            each.when,
        )
        for each in newest
    )


def _read(stream: JournalStream, now_ms: int) -> tuple[StreamStatus, Mapping[str, Published]]:
    facts = read_stream_facts(stream)
    ends = {each.writer: each.end_offset for each in facts.writers}
    blocks = published_blocks(stream.storage.walk(stream.name), ends)
    lost = [each for ranges in lost_ranges(stream.storage, stream.name).values() for each in ranges]
    problems, bounds = list(facts.damage), facts.bounds or Bounds()
    times = [time_ms for each in blocks.values() for time_ms in each.times_ms]
    status = StreamStatus(
        name=stream.name,
        schema=facts.schema,
        writers=tuple(_writer(each) for each in facts.writers),
        receivers=tuple(_receiver(stream.name, each, blocks, now_ms) for each in facts.receivers),
        consumers=tuple(_consumer(each, blocks, now_ms) for each in facts.consumers),
        records=sum(each.records for each in facts.writers),
        blocks=sum(each.blocks for each in facts.writers),
        size_bytes=sum(each.size_bytes for each in facts.writers),
        rate=sum(each.since(now_ms)[0] for each in blocks.values()) / _WINDOW_S,
        oldest_ms=min(times, default=None),
        newest_ms=max(times, default=None),
        uncommitted_bytes=sum(each.uncommitted_bytes for each in facts.writers),
        max_bytes=bounds.max_bytes,
        max_lag_records=bounds.max_lag_records,
        losses=loss_statuses(stream.name, _losses(stream, problems)) if lost else (),
        loss_count=len(lost),
        lost_records=sum(each.count for each in lost),
        problems=tuple(problems),
    )
    return status, blocks


def _ends(stream: StreamStatus) -> dict[WriterId, int]:
    parsed = ((parse_writer(each.writer), each.end_offset) for each in stream.writers)
    return {writer: end for writer, end in parsed if writer is not None}


def _losses(stream: JournalStream, problems: list[str]) -> list[Loss]:
    try:
        return read_losses(stream.storage, stream.name)
    except PenstockError as error:
        problems.append(str(error))
        return []


def _writer(facts: WriterFacts) -> WriterStatus:
    return WriterStatus(
        facts.writer,
        facts.state,
        facts.blocks,
        facts.size_bytes,
        facts.start_offset,
        facts.end_offset,
        facts.records,
        facts.lost,
    )


def _receiver(
    stream: str, facts: ReceiverFacts, blocks: Mapping[str, Published], now_ms: int
) -> ReceiverStatus:
    said = facts.status
    own = [
        published
        for writer, published in blocks.items()
        if (parsed := parse_writer(writer)) is not None and parsed.receiver == facts.receiver
    ]
    counts = [each.since(now_ms) for each in own]
    records, count = sum(n for n, _ in counts), sum(n for _, n in counts)
    is_dead = said.state != "stopped" and facts.has_process is False
    return ReceiverStatus(
        name=facts.receiver,
        stream=stream,
        state="dead" if is_dead else said.state,
        writer=said.writer,
        process=Process(said.host, said.pid, facts.has_process),
        changed_ms=said.changed_ms,
        errors=said.errors,
        last_error=said.last_error,
        listening_at=said.listening_at,
        rate=records / _WINDOW_S,
        newest_ms=max((each.times_ms[-1] for each in own if each.times_ms), default=None),
        block_records=records // count if count else None,
        max_bytes=said.max_bytes,
        max_lag_records=said.max_lag_records,
        refused=said.refused,
        publish_ms=said.publish_ms,
    )


def _consumer(facts: ConsumerFacts, blocks: Mapping[str, Published], now_ms: int) -> ConsumerStatus:
    program = facts.program
    oldest_ms = oldest_untaken(blocks, facts.offsets)
    return ConsumerStatus(
        name=facts.consumer,
        lag_records=facts.lag,
        lag_ms=None if oldest_ms is None else max(now_ms - oldest_ms, 0),
        committed_ms=None if program is None else program.committed_ms,
        location=None if program is None else _url(program.location),
        process=None if program is None else Process(program.host, program.pid, facts.has_process),
    )


def _url(location: str) -> str:
    """Return a location as locations are named here; Spark's queries say ``file:/path``."""
    return re.sub("^file:/(?!/)", "file:///", location)
