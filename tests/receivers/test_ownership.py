"""Parts of a source pass between receivers that live, sleep and die: each record once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from penstock.errors import (
    FencedError,
    JournalError,
    LogFormatError,
    ReceiverError,
    StorageError,
)
from penstock.journal import (
    JournalStream,
    JournalWriter,
    StreamProgress,
    advance,
    ranges_between,
    read_records,
)
from penstock.receivers.ownership import (
    Ownership,
    ReplacedSourceError,
    Share,
    end_of,
    move_parts,
    read_shares,
)
from penstock.testing import FaultyStorage
from penstock.testing.faulty_storage import OperationKind
from tests.journal.helpers import clear_memory, memory_stream

PARTS = ("clicks/0", "clicks/1", "clicks/2")


@pytest.fixture
def stream() -> Iterator[JournalStream]:
    yield memory_stream()
    clear_memory()


class Member:
    """A receiver that reads numbered records of the parts that it owns."""

    def __init__(self, stream: JournalStream, name: str) -> None:
        self.stream = stream
        self.writer = JournalWriter(stream, name)
        self.start()

    def start(self) -> None:
        """Start, or start again after an error: with the same writer, and nothing was released."""
        self.ownership = Ownership(self.stream, self.writer.id, lambda: self.writer.position)
        self.ends: dict[str, int] = {}

    def claim(self, *parts: str) -> None:
        self.ends |= self.ownership.claim(parts, lambda _: dict.fromkeys(PARTS, 0))

    def store(self, part: str, count: int = 1) -> None:
        for number in range(self.ends[part], self.ends[part] + count):
            self.ends[part] = number + 1
            position = self.ownership.position(self.ends)
            self.writer.append(f"{part}:{number}", position=position)
        self.writer.flush()

    def release(self, *parts: str) -> None:
        for part in parts:
            self.ends.pop(part, None)
        self.writer.flush()
        self.ownership.release(parts)

    def die(self) -> None:
        self.writer.abandon()


def stored(stream: JournalStream) -> Counter[str]:
    ends = advance({}, StreamProgress(stream).ends({}))
    return Counter(read_records(stream, ranges_between({}, ends)))


def each_once(**counts: int) -> Counter[str]:
    return Counter(f"clicks/{p[1:]}:{n}" for p, count in counts.items() for n in range(count))


def test_a_part_of_a_live_owner_is_taken_by_sealing_it(stream: JournalStream) -> None:
    a, b = Member(stream, "a"), Member(stream, "b")
    a.claim(*PARTS)
    a.store("clicks/0", 3)
    b.claim("clicks/0")
    assert b.ends == {"clicks/0": 3}
    with pytest.raises(FencedError):
        a.store("clicks/0")
    b.store("clicks/0", 2)
    again = Member(stream, "a")
    again.claim("clicks/1", "clicks/2")  # b's writer is left alone
    again.store("clicks/1", 1)
    b.store("clicks/0", 1)
    assert stored(stream) == each_once(p0=6, p1=1)
    again.die()
    b.die()


def test_a_released_part_passes_on_and_its_owner_lives(stream: JournalStream) -> None:
    a, b = Member(stream, "a"), Member(stream, "b")
    a.claim(*PARTS)
    a.store("clicks/0", 3)
    a.release("clicks/0")
    b.claim("clicks/0")
    b.store("clicks/0", 2)
    a.store("clicks/1", 2)
    assert stored(stream) == each_once(p0=5, p1=2)
    a.die()
    b.die()


def test_an_end_of_an_earlier_ownership_does_not_count(stream: JournalStream) -> None:
    """The seal of ``a`` has 3 from its first time, and it had begun again at 5."""
    a, b, c = (Member(stream, name) for name in "abc")
    a.claim("clicks/0")
    a.store("clicks/0", 3)
    a.release("clicks/0")
    b.claim("clicks/0")
    b.store("clicks/0", 2)
    b.release("clicks/0")
    a.claim("clicks/0")
    a.die()
    c.claim("clicks/0")
    assert c.ends == {"clicks/0": 5}
    for member in (b, c):
        member.die()


def test_a_start_after_an_error_settles_what_the_failed_one_owned(stream: JournalStream) -> None:
    """Else the next owner of ``clicks/1`` would begin where ``a`` began: its records twice."""
    a, b = Member(stream, "a"), Member(stream, "b")
    a.claim(*PARTS)
    a.store("clicks/1", 3)
    a.start()
    a.claim("clicks/0")
    a.store("clicks/0", 2)
    assert read_shares(stream)["clicks/1"] == Share(None, 3, 1)
    b.claim("clicks/1")
    assert b.ends == {"clicks/1": 3}
    a.store("clicks/0", 1)  # nothing had to be sealed
    b.store("clicks/1", 1)
    assert stored(stream) == each_once(p0=3, p1=4)
    a.die()
    b.die()


def test_an_end_without_a_record_is_settled_or_released(stream: JournalStream) -> None:
    """The marks of transactions: after them comes no record to be stored with their end."""
    a, b = Member(stream, "a"), Member(stream, "b")
    a.claim("clicks/0", "clicks/1")
    a.store("clicks/0", 2)
    a.ownership.settle({"clicks/0": 3})
    assert read_shares(stream)["clicks/0"] == Share(str(a.writer.id), 3, 1)
    a.ends["clicks/0"] = 3
    a.store("clicks/0", 1)
    a.ownership.release(["clicks/0"], {"clicks/0": 5})
    b.claim("clicks/0", "clicks/1")  # which seals a
    assert b.ends == {"clicks/0": 5, "clicks/1": 0}
    a.ownership.settle({"clicks/1": 7})
    assert read_shares(stream)["clicks/1"].start == 0, "it is b's"
    a.die()
    b.die()


def test_a_source_that_was_replaced_is_not_read_on(stream: JournalStream) -> None:
    a = Member(stream, "a")

    def claim(origin: str | None) -> dict[str, int]:
        return a.ownership.claim(PARTS[:1], lambda _: dict.fromkeys(PARTS, 4), lambda _: origin)

    claim("x")
    a.ownership.settle({PARTS[0]: 5})
    for same in (None, "x"):
        assert claim(same) == {PARTS[0]: 5}
        a.release(PARTS[0])
    for _ in range(2):
        with pytest.raises(ReplacedSourceError, match="replaced"):
            claim("y")
    move_parts(stream, PARTS[:1], lambda ends: {PARTS[0]: (ends[PARTS[0]] - 5, "y")})
    with pytest.raises(ReplacedSourceError, match="replaced"):
        claim("x")
    assert claim("y") == {PARTS[0]: 0}
    with pytest.raises(ReplacedSourceError, match="replaced"):
        claim("x")
    a.die()


def test_all_parts_begin_with_the_first_claim(stream: JournalStream) -> None:
    """Else what comes before the second receiver joins would be skipped, or read twice."""
    a, b = Member(stream, "a"), Member(stream, "b")
    asked = []

    def starts(is_first: bool) -> dict[str, int]:
        asked.append(is_first)
        return dict.fromkeys((*PARTS, "new/0")[: 3 if is_first else 4], 7 if is_first else 0)

    assert a.ownership.claim(PARTS[:1], starts) == {"clicks/0": 7}
    assert b.ownership.claim(PARTS[1:], starts) == {"clicks/1": 7, "clicks/2": 7}
    assert b.ownership.claim(["new/0"], starts) == {"new/0": 0}
    assert asked == [True, False]
    with pytest.raises(ReceiverError, match=r"where unknown/0 begins"):
        b.ownership.claim(["unknown/0"], starts)
    a.die()
    b.die()


def test_old_entries_are_deleted(stream: JournalStream) -> None:
    a = Member(stream, "a")
    for _ in range(20):
        a.claim("clicks/0")
    assert len(stream.storage.names("s/receivers/_parts")) == 8
    a.die()


def test_a_claim_under_a_name_that_became_available_again_does_not_count(
    stream: JournalStream,
) -> None:
    """A receiver listed the log, slept while entries came and went, and creates the next one."""
    b = Member(stream, "b")

    def take_over() -> None:
        for _ in range(12):
            b.claim("clicks/0")
            b.store("clicks/0")

    storage = FaultyStorage(stream.storage, before=_once("create", "s/receivers/*", take_over))
    slow = Member(JournalStream(storage, stream.name, stream.format), "a")
    slow.claim("clicks/0")
    assert slow.ends == {"clicks/0": 12}
    with pytest.raises(FencedError):
        b.store("clicks/0")
    slow.store("clicks/0")
    assert stored(stream) == each_once(p0=13)
    slow.die()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["list", "read", "create", "delete"])
def test_a_claim_or_release_is_cut_off_at_each_step(kind: OperationKind, after: bool) -> None:
    for nth in range(1, 10):
        stream = memory_stream()
        owner = Member(stream, "a")
        owner.claim(*PARTS)
        owner.store("clicks/0", 2)
        storage = FaultyStorage(stream.storage)
        cut = Member(JournalStream(storage, stream.name, stream.format), "b")
        storage.fail(kind, nth=nth, after=after)
        with suppress(StorageError, JournalError):
            cut.claim("clicks/0")
            cut.store("clicks/0")
            cut.release("clicks/0")
        cut.die()
        last = Member(stream, "c")
        last.claim(*PARTS)
        owner.die()
        last.die()
        assert stored(stream) == each_once(p0=last.ends["clicks/0"]), nth
        assert last.ends["clicks/0"] >= 2
    clear_memory()


@pytest.mark.parametrize("seed", range(12))
def test_receivers_come_go_sleep_and_wake_in_any_order(stream: JournalStream, seed: int) -> None:
    chance = random.Random(seed)
    alive: list[Member] = []
    for _ in range(300):
        if len(alive) < 2 or chance.random() < 0.08:  # the earlier one of that name may be alive
            alive.append(Member(stream, chance.choice("abc")))
        member, part = chance.choice(alive), chance.choice(PARTS)
        try:
            act = chance.random()
            if act < 0.2:
                member.claim(*chance.sample(PARTS, chance.randint(1, 3)))
            elif act < 0.8 and part in member.ends:
                member.store(part, chance.randint(1, 3))
            elif act < 0.9:
                member.release(part)
            elif act < 0.96:
                member.start()
            elif act < 0.99:
                member.die()
                alive.remove(member)
        except FencedError:
            member.die()
            alive.remove(member)
    last = Member(stream, "z")
    last.claim(*PARTS)
    found = {f"p{part[-1]}": end for part, end in last.ends.items()}
    assert stored(stream) == each_once(**found)
    assert sum(found.values()) > 20
    for member in [*alive, last]:
        member.die()


def test_damage_is_named(stream: JournalStream) -> None:
    a = Member(stream, "a")
    a.claim("clicks/0")
    path = "s/receivers/_parts/00000000000000000000.json"
    for data in (b"{", b'{"version":2,"parts":{}}', b'{"version":1,"parts":{"clicks/0":{}}}'):
        stream.storage.create(path, data, overwrite=True)
        with pytest.raises(LogFormatError, match="ownership log"):
            read_shares(stream)
    a.die()


@pytest.mark.parametrize("position", [{"line": 3}, {"version": 2, "parts": {}}, "here"])
def test_positions_of_other_receivers_are_refused(position: object) -> None:
    with pytest.raises(ReceiverError, match="not one of a receiver"):
        end_of("clicks/0", Share("a-00000000", 5, 1), position)


def _once(kind: str, path: str, action: Callable[[], None]) -> Callable[..., None]:
    left = [action]

    def before(operation: object) -> None:
        is_it = (operation.kind == kind, operation.path.startswith(path.rstrip("*")))  # type: ignore[attr-defined]
        if all(is_it) and left:
            left.pop()()

    return before
