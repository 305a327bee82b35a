"""Known mistakes, planted one at a time: each must be caught by a test of this folder.

This tries the tests, not the journal. A mistake that comes to mind, or that got through once,
belongs in this list.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.errors import AlreadyExistsError, PenstockError
from penstock.journal import (
    CommitPolicy,
    JournalStream,
    JournalWriter,
    RecordFormat,
    StreamProgress,
    WriterEnd,
    advance,
    block,
    epochs,
    offsets,
    progress,
    reader,
)
from penstock.journal.block import BlockFooter
from penstock.journal.layout import WriterId, block_path, claim_path, parse_writer
from penstock.journal.losses import skipped_block
from penstock.journal.retention import registration, retirement, retirer
from penstock.journal.retention.consumer_files import ConsumerEntry
from penstock.journal.retention.retirement import Doomed
from penstock.journal.retention.retirer import Retirer
from penstock.journal.scan import WriterScan
from penstock.journal.store import Store
from penstock.journal.writer import publisher
from penstock.journal.writer.buffer import StoreBuffer
from penstock.journal.writer.group import EncodedGroup, Group
from penstock.journal.writer.publisher import Publisher
from penstock.model import Offsets
from penstock.storage import local, open_storage
from tests.journal import (
    gate,
    helpers,
    machine,
    test_block,
    test_epochs,
    test_offsets,
    test_reader,
    test_requests,
    test_retention,
    test_retirer,
    test_schema,
    test_skip,
    test_writer,
)
from tests.journal import test_registration_races as races
from tests.journal.interleaving import Side
from tests.journal.power_cut import check_power_cuts
from tests.storage.faulty_storage import FaultyStorage

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]
Check = Callable[[Path], Any]

BUGS: dict[str, tuple[Bug, Check]] = {}


def caught_by(check: Check) -> Callable[[Bug], Bug]:
    """Note that a planted bug is caught by a check."""

    def note(bug: Bug) -> Bug:
        BUGS[bug.__name__] = (bug, check)
        return bug

    return note


# -- what catches them: tests of this folder, called with a journal of their own --


def with_stream(test: Callable[..., Any], *arguments: Any) -> Check:
    def check(folder: Path) -> None:
        test(JournalStream.create(open_storage(folder), "lines", RecordFormat()), *arguments)

    return check


def with_faults(test: Callable[..., Any], *arguments: Any) -> Check:
    def check(folder: Path) -> None:
        faulty = FaultyStorage(open_storage(folder))
        test(JournalStream.create(faulty, "lines", RecordFormat()), faulty, *arguments)

    return check


def alone(test: Callable[..., Any], *arguments: Any) -> Check:
    return lambda folder: test(*arguments)


def the_model(_: Path) -> None:
    run_state_machine_as_test(
        machine.JournalMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=40,
            database=None,
            derandomize=True,
            phases=[Phase.generate],  # whether it is caught, not how briefly it can be told
            suppress_health_check=list(HealthCheck),
        ),
    )


# -- the writer --


@caught_by(with_faults(test_writer.test_an_ack_comes_after_its_publish))
def ack_before_publish(patch: Patch) -> None:
    publish = Publisher._publish

    def early(self: Publisher, block: EncodedGroup) -> bool:
        for ack in block.group.acks:
            ack()
        block.group.acks.clear()
        return publish(self, block)

    patch.setattr(Publisher, "_publish", early)


@caught_by(with_faults(test_writer.test_nothing_is_acked_past_a_failed_publish, False))
def go_on_after_a_failed_publish(patch: Patch) -> None:
    def forgiving(self: Publisher, block: EncodedGroup) -> bool:
        path = block_path(self._stream.name, self._writer, block.footer.start_offset)
        durable = True
        try:
            self._stream.storage.create(path, block.data)
        except PenstockError:
            durable = False
        self._newest = block.footer
        self._buffer.end_publish(block.group, 0 if block.data is None else block.data.size)
        return durable

    patch.setattr(Publisher, "_publish", forgiving)


@caught_by(with_faults(test_writer.test_a_zombie_that_wakes_can_neither_publish_nor_ack))
def take_a_taken_name_for_success(patch: Patch) -> None:
    publish = Publisher._publish

    class Forgiving:
        def __init__(self, storage: Any) -> None:
            self._storage = storage

        def create(self, path: str, data: Any) -> None:
            with suppress(AlreadyExistsError):
                self._storage.create(path, data)

    def lenient(self: Publisher, block: EncodedGroup) -> bool:
        stream = self._stream
        forgiving: Any = Forgiving(stream.storage)
        self._stream = JournalStream(forgiving, stream.name, stream.format)
        try:
            return publish(self, block)
        finally:
            self._stream = stream

    patch.setattr(Publisher, "_publish", lenient)


@caught_by(
    with_faults(
        test_writer.test_caps_and_order_hold_also_while_the_store_is_slow,
        CommitPolicy(600_000, max_block_records=10),
        10,
    )
)
def publish_pairs_of_groups_in_reverse(patch: Patch) -> None:
    def swapped(self: Publisher) -> None:
        held: list[EncodedGroup] = []
        more = True
        while more:
            block = self._blocks.get()
            more = block is not None
            held += [block] if block is not None else []
            if len(held) == 2 or not more:
                for each in reversed(held):
                    self._publish(each)
                held = []

    patch.setattr(Publisher, "_publish_blocks", swapped)


@caught_by(with_stream(test_writer.test_an_idle_writer_publishes_at_once_for_a_waiter))
def wake_nobody_for_a_waiter(patch: Patch) -> None:
    patch.setattr(Group, "note_waiter", lambda self: None)


@caught_by(with_faults(test_writer.test_a_store_blocks_until_there_is_room))
def buffer_without_bound(patch: Patch) -> None:
    patch.setattr(StoreBuffer, "_wait_to_take", lambda self, size: self._check_open())


@caught_by(with_stream(test_writer.test_empty_stores_take_no_room))
def count_the_buffers_of_empty_batches(patch: Patch) -> None:
    def leaking(self: StoreBuffer, store: Store) -> None:
        self._buffered += 4
        original(self, store)

    original = StoreBuffer._take
    patch.setattr(StoreBuffer, "_take", leaking)


@caught_by(
    alone(
        test_schema.test_a_misfit_fails_its_own_store_and_no_other,
        "null in a required column",
        "append",
    )
)
def let_nulls_into_required_columns(patch: Patch) -> None:
    patch.setattr(RecordFormat, "_check_writable", lambda self, table: None)


@caught_by(
    with_stream(
        test_epochs.test_a_position_goes_through_epochs_without_records_and_through_retention
    )
)
def forget_the_position_when_a_block_brings_none(patch: Patch) -> None:
    load = publisher.load_position
    patch.setattr(publisher, "load_position", lambda text, _: load(text, None))


# -- takeover --


@caught_by(with_faults(test_writer.test_a_zombie_that_wakes_can_neither_publish_nor_ack))
def skip_the_seal(patch: Patch) -> None:
    def unsealed(stream: JournalStream, writer: WriterId, inherited: Any) -> BlockFooter:
        return stream.newest(writer) or BlockFooter(0, 0, inherited)

    patch.setattr(epochs, "_seal", unsealed)


@caught_by(with_faults(test_writer.test_a_zombie_that_was_quicker_is_seen_by_its_successor))
def seal_where_the_writer_was_first_seen(patch: Patch) -> None:
    def hasty(stream: JournalStream, writer: WriterId, inherited: Any) -> BlockFooter:
        newest = stream.newest(writer) or BlockFooter(0, 0, inherited)
        with suppress(AlreadyExistsError):
            epochs.publish_seal(stream, writer, newest)
        return newest

    patch.setattr(epochs, "_seal", hasty)


@caught_by(
    with_stream(
        test_epochs.test_a_position_goes_through_epochs_without_records_and_through_retention
    )
)
def seal_without_the_inherited_position(patch: Patch) -> None:
    seal = epochs._seal
    patch.setattr(epochs, "_seal", lambda stream, writer, _: seal(stream, writer, None))


@caught_by(with_stream(test_skip.test_a_position_is_found_in_earlier_epochs))
def look_for_the_position_in_one_epoch_alone(patch: Patch) -> None:
    def near(stream: JournalStream, writer: str, blocks: Any) -> Iterator[tuple[str, int]]:
        return ((writer, block.start_offset) for block in reversed(blocks))

    patch.setattr(skipped_block, "_backwards", near)


@caught_by(with_stream(test_epochs.test_a_takeover_that_fails_leaves_no_epoch))
def claim_before_the_epochs_before_are_sealed(patch: Patch) -> None:
    claim, seal = epochs._next_writer, epochs._seal_before

    def hasty(stream: JournalStream, receiver: str) -> WriterId:
        writer = claim(stream, receiver)
        epochs._claim(stream, writer)
        seal(stream, writer)
        return replace(writer, epoch=writer.epoch + 1)

    patch.setattr(epochs, "_next_writer", hasty)


@caught_by(with_stream(test_epochs.test_many_threads_claim_epochs_of_their_own))
def claim_an_epoch_without_excluding_others(patch: Patch) -> None:
    def shared(stream: JournalStream, writer: WriterId) -> bool:
        stream.storage.create(claim_path(stream.name, writer), b"{}", overwrite=True)
        return True

    patch.setattr(epochs, "_claim", shared)


@caught_by(
    lambda folder: test_epochs.test_an_epoch_that_a_scan_missed_counts(
        *(lambda storage: (JournalStream.create(storage, "lines", RecordFormat()), storage))(
            open_storage(folder)
        )
    )
)
def believe_every_scan(patch: Patch) -> None:
    def listed(self: JournalStream) -> list[WriterId]:
        names = (entry.name for entry in self.storage.list(self.name))
        return sorted(writer for name in names if (writer := parse_writer(name)))

    patch.setattr(JournalStream, "writers", listed)


# -- the disk --


@caught_by(check_power_cuts)
def no_fsync_of_folders(patch: Patch) -> None:
    patch.setattr(local, "sync_folder", lambda syscalls, folder: None)


@caught_by(check_power_cuts)
def no_fsync_of_files(patch: Patch) -> None:
    def careless(self: local.LocalStorage, fd: int, content: memoryview) -> None:
        self._syscalls.write(fd, content)
        self._syscalls.close(fd)

    patch.setattr(local.LocalStorage, "_write_durably", careless)


@caught_by(with_faults(test_writer.test_a_zombie_that_wakes_can_neither_publish_nor_ack))
def replace_what_has_the_name(patch: Patch) -> None:
    def replacing(self: Any, temporary: str, target: str, overwrite: bool) -> None:
        os.replace(temporary, target)

    patch.setattr(local.LocalStorage, "_give_name", replacing)


# -- blocks and reading --


@caught_by(alone(test_block.test_every_flipped_bit_is_found, "none"))
def check_no_checksum(patch: Patch) -> None:
    class AlwaysEqual(bytes):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = bytes.__hash__

    to_hex = block._hex
    patch.setattr(block, "_hex", lambda crc: AlwaysEqual(to_hex(crc)))


@caught_by(alone(test_block.test_every_flipped_bit_is_found, "none"))
def read_checksums_as_numbers(patch: Patch) -> None:
    class Lenient(bytes):
        def __ne__(self, other: object) -> bool:
            try:
                return int(self, 16) != int(bytes(other), 16)  # type: ignore[call-overload]
            except ValueError:
                return True

        __hash__ = bytes.__hash__

    to_hex = block._hex
    patch.setattr(block, "_hex", lambda crc: Lenient(to_hex(crc)))


@caught_by(
    alone(test_reader.test_a_missing_block_is_named_with_what_is_missed, 6, (0, 15), (6, 13))
)
def trust_the_listing_for_a_blocks_end(patch: Patch) -> None:
    patch.setattr(reader, "check_slice", lambda part, footer: None)


# -- batches --


def patch_all(patch: Patch, name: str, value: Any) -> None:
    for module in (offsets, progress, retirement):
        if hasattr(module, name):
            patch.setattr(module, name, value)


@caught_by(the_model)
def take_finished_writers_again(patch: Patch) -> None:
    patch_all(patch, "is_finished", lambda writer, committed: False)


@caught_by(the_model)
def let_go_of_a_writer_once_it_is_sealed(patch: Patch) -> None:
    def hasty(start: Offsets, ends: Mapping[WriterId, WriterEnd]) -> dict[str, int]:
        result = advance(start, ends)
        for sealed in (each for each, end in ends.items() if end.sealed):
            if any(w.receiver == sealed.receiver and w.epoch > sealed.epoch for w in ends):
                result.pop(str(sealed), None)
        return result

    patch.setattr(machine, "advance", hasty)


@caught_by(the_model)
def look_only_once_at_each_writer(patch: Patch) -> None:
    scan = StreamProgress._scan

    def once(self: StreamProgress, writer: WriterId) -> WriterScan:
        seen = self.scan.writers.get(str(writer)) if self.scan else None
        return seen if seen and seen.newest else scan(self, writer)

    patch.setattr(StreamProgress, "_scan", once)


@caught_by(alone(test_offsets.test_a_journal_that_is_behind_the_offsets_is_refused, {}))
def take_a_shrunken_journal_for_one_without_news(patch: Patch) -> None:
    patch.setattr(offsets, "_check_not_behind", lambda start, ends: None)


# -- retention --


@caught_by(alone(test_retention.test_blocks_before_the_committed_offset_go, 5, [3, 6], False))
def retire_one_record_too_far(patch: Patch) -> None:
    floor = retirement.floor_of

    def generous(writer: WriterId, held: Iterable[Offsets]) -> int | None:
        found = floor(writer, held)
        return found if found is None else found + 1

    patch.setattr(retirement, "floor_of", generous)


@caught_by(alone(test_retention.test_the_fence_outlives_retention))
def retire_the_last_file_too(patch: Patch) -> None:
    def pairs(starts: Sequence[int]) -> Iterator[tuple[int, int]]:
        return zip(starts, [*starts[1:], *starts[-1:]], strict=True)

    patch.setattr(retirement, "itertools", SimpleNamespace(pairwise=pairs))


@caught_by(alone(test_retention.test_the_slowest_consumer_holds_blocks_back))
def retire_by_the_fastest_consumer(patch: Patch) -> None:
    patch.setattr(retirement, "min", max, raising=False)


@caught_by(alone(test_retirer.test_another_consumer_retires_nothing_that_is_retained))
def delete_what_is_only_retained(patch: Patch) -> None:
    patch.setattr(ConsumerEntry, "held", property(lambda self: (self.offsets,)))


@caught_by(alone(test_retirer.test_after_a_failed_step_another_writer_is_not_forgotten))
def note_writers_only_when_they_are_done(patch: Patch) -> None:
    moved = Retirer._moved

    def forgetful(self: Retirer, writers: Any, held: Any) -> Any:
        before = dict(self._floors)
        floors = moved(self, writers, held)
        self._floors = before
        return floors

    patch.setattr(Retirer, "_moved", forgetful)


def the_races(retiring: Callable[[JournalStream], Side], held: str) -> Check:
    test = races.test_a_new_consumer_reads_on_whatever_comes_between
    return alone(test, retiring, held, "earliest")


@caught_by(the_races(races.by_retire, "retirement"))
def begin_without_a_look_at_what_is_announced(patch: Patch) -> None:
    patch.setattr(registration, "retiring_offsets", lambda stream: {})


@caught_by(
    alone(test_retention.test_a_new_consumer_begins_behind_holes_that_all_others_are_past, [2])
)
def begin_before_a_hole_that_a_retirement_left(patch: Patch) -> None:
    patch.setattr(registration, "retired_before", lambda writer, entries, retiring: 0)


@caught_by(
    alone(test_retention.test_a_hole_that_a_consumer_has_yet_to_read_is_damage_for_a_new_one_too)
)
def take_every_hole_for_retired(patch: Patch) -> None:
    patch.setattr(registration, "retired_before", lambda writer, entries, retiring: None)


@caught_by(alone(test_requests.test_a_footer_of_the_scan_is_held_against_what_was_listed_since))
def believe_the_footer_of_a_scan(patch: Patch) -> None:
    patch.setattr(reader, "check_slice", lambda part, footer: None)


@caught_by(the_races(races.by_retire, "registration"))
def announce_nothing(patch: Patch) -> None:
    patch.setattr(retirement, "publish_notice", lambda stream, retiring: "none")


@caught_by(the_races(races.by_batches, "registration"))
def announce_nothing_from_batch_to_batch(patch: Patch) -> None:
    patch.setattr(retirer, "announcement", lambda doomed: {})


@caught_by(the_races(races.by_retire, "retirement"))
def look_at_the_consumers_only_before_the_announcement(patch: Patch) -> None:
    delete = retirement.delete_blocks

    def trusting(stream: JournalStream, doomed: Doomed, held: Collection[Offsets]) -> int:
        return delete(stream, doomed, [{str(writer): 1 << 62 for writer in doomed}])

    patch.setattr(retirement, "delete_blocks", trusting)


@caught_by(alone(races.test_a_name_that_is_taken_over_is_held_back_like_a_new_one, "registration"))
def take_a_name_over_without_holding_back(patch: Patch) -> None:
    read = registration.read_consumer

    def without_offsets(stream: JournalStream, consumer: str) -> ConsumerEntry | None:
        entry = read(stream, consumer)
        return entry and replace(entry, offsets={})

    patch.setattr(registration, "read_consumer", without_offsets)


def note_writers(patch: Patch) -> list[JournalWriter]:
    opened: list[JournalWriter] = []
    start = JournalWriter.__init__

    def noted(self: JournalWriter, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        opened.append(self)

    patch.setattr(JournalWriter, "__init__", noted)
    return opened


@pytest.mark.storm
@pytest.mark.parametrize("name", BUGS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_tests_catch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug, check = BUGS[name]
    for module in (helpers, gate, test_writer):
        monkeypatch.setattr(module, "WAIT_S", 1.0)
    opened = note_writers(monkeypatch)
    with monkeypatch.context() as patch:
        bug(patch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            check(tmp_path)
    for each in opened:
        each.abandon()  # a test that fails leaves its writers open
