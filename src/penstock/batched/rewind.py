"""A way back: all topics of a checkpoint path go to other offsets, or none does.

    rewind (durable) -> <topic>/<N+1>.txt of each topic -> planned removed -> rewind removed

Invariants:

1. The file ``rewind`` holds all new checkpoints. Until it is durable nothing is changed. From then
   on the change is made: whoever has the path next completes it before anything else is read, be it
   the same command again or a program that starts. So a program finds the path as it was before, or
   as planned, whenever the command was killed.
2. It is made with the path's lock, and if the topics' newest checkpoints are those of the plan.
3. Numbers are not used again, and the checkpoints of before stay: that is the way back.
4. ``planned`` is removed if it is what the plan saw. What follows is new to exactly-once sinks.
5. A new checkpoint counts in the topic of the one that its offsets are from. Offsets that are given
   are of the topic that its newest checkpoint counts in, or of today's if the brokers were asked.

Object stores have no locks. There a program that runs against the rule may create the same number:
then what was made of the rewind is taken back, and its command or the start fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from penstock.batched.kept import (
    ends_of,
    kept_numbers,
    newest,
    open_path,
    read_ids,
    refusal,
    sound,
    topics_of,
)
from penstock.batched.layout import (
    PLANNED,
    REWIND,
    TOPICS,
    Move,
    Rewind,
    TopicEnds,
    TopicIds,
    checkpoint_path,
    dump_checkpoint,
    dump_rewind,
    dump_topics,
    parse_planned,
    parse_rewind,
    with_id,
)
from penstock.checkpoint.driver_lock import LOCK_NAME, DriverLock
from penstock.checkpoint.local_files import local_path
from penstock.errors import (
    AlreadyExistsError,
    ConcurrentDriverError,
    KafkaDataLossError,
    LogFormatError,
    NotFoundError,
)
from penstock.storage import Storage, open_storage

__all__ = [
    "apply_rewind",
    "begun_rewind",
    "complete_rewind",
    "plan_promote",
    "plan_rewind",
]

_Ends = Mapping[int, int]
_BYTES = "surrogateescape"  # keeps what is not UTF-8


def plan_promote(place: str | os.PathLike[str], number: int) -> Rewind:
    """Plan to make the checkpoint of that number the newest one, in each topic.

    Returns the rewind that a command began and did not complete, if there is one.

    Raises:
        ConfigError: a topic does not have it, or it is damaged.
        LogFormatError: a rewind was begun, and its file is damaged.
    """
    storage = open_path(place)
    begun = begun_rewind(storage)
    return begun or _plan(storage, {t: ends_of(storage, t, number) for t in _topics(storage)})


def plan_rewind(
    place: str | os.PathLike[str],
    *,
    shift_by: int | None = None,
    offsets: Mapping[str, _Ends] | None = None,
    topic_ids: Mapping[str, str | None] = MappingProxyType({}),
) -> Rewind:
    """Plan to go back, by so many checkpoints of each topic, or to the offsets given.

    Returns the rewind that a command began and did not complete, if there is one.

    Args:
        place: the checkpoint path.
        shift_by: so many checkpoints.
        offsets: the last offset that counts as done, by topic and partition; others stay. -1 is
            before the first record. They may lie ahead.
        topic_ids: the ids that the brokers say of their topics. The offsets are then of these, and
            not of those that the checkpoints count in: the way on in a topic that was created anew.

    Raises:
        ConfigError: there is no such checkpoint, topic or partition, or not one way was given.
        KafkaDataLossError: a topic was created anew, and some of its offsets are not given.
        LogFormatError: a rewind was begun, and its file is damaged.
    """
    storage = open_path(place)
    if (shift_by is None) == (offsets is None):
        raise refusal(storage, "one way back is needed", "give a number of checkpoints, or offsets")
    if (begun := begun_rewind(storage)) is not None:
        return begun
    if shift_by is not None:
        return _plan(storage, {t: _earlier(storage, t, shift_by) for t in _topics(storage)})
    assert offsets is not None
    return _plan(
        storage, {t: _moved(storage, t, lasts, topic_ids.get(t)) for t, lasts in offsets.items()}
    )


def apply_rewind(place: str | os.PathLike[str], plan: Rewind) -> list[str]:
    """Make the checkpoints of a plan; return their paths.

    After a kill the path is as before, or the plan is completed by this call, by the next command
    or by the next start of the program.

    Raises:
        ConcurrentDriverError: the program runs, or made a checkpoint since.
        StorageError: a file cannot be written; the same call completes the change.
    """
    if not plan.topics:
        return []
    storage = open_storage(place)
    with _locked(storage):
        if not plan.is_begun:
            for topic, move in plan.topics.items():
                if newest(storage, topic)[0] != move.number - 1:
                    raise _conflict(storage, checkpoint_path(topic, move.number))
            try:
                storage.create(REWIND, dump_rewind(plan))
            except AlreadyExistsError as error:
                raise _conflict(storage, REWIND) from error
        return complete_rewind(storage)


def begun_rewind(storage: Storage) -> Rewind | None:
    """Return the rewind that was begun and is not complete, if there is one.

    Raises:
        LogFormatError: its file is damaged.
    """
    try:
        return parse_rewind(storage.read(REWIND))
    except NotFoundError:
        return None
    except ValueError as error:
        raise LogFormatError(
            f"the file of a rewind is damaged: {error}",
            operation="complete rewind",
            path=storage.uri(REWIND),
            hint="see by inspect which of the topics were moved; without the file they stay as "
            "they are",
        ) from error


def complete_rewind(storage: Storage) -> list[str]:
    """Complete the rewind that was begun, if there is one; return the checkpoints it has made.

    Raises:
        ConcurrentDriverError: a program made one of its checkpoints; the rewind is taken back.
        LogFormatError: its file is damaged.
        StorageError: a file cannot be written.
    """
    rewind = begun_rewind(storage)
    if rewind is None:
        return []
    made = {
        checkpoint_path(t, m.number): dump_checkpoint(m.after.ends)
        for t, m in rewind.topics.items()
    }
    for path, data in made.items():
        try:
            storage.create(path, data)
        except AlreadyExistsError as error:
            if storage.read(path) != data:  # else an earlier try's
                for other in (each for each in made if _holds(storage, each, made[each])):
                    storage.delete(other)
                storage.delete(REWIND)
                raise _conflict(storage, path) from error
    planned = rewind.planned
    if planned is not None and _holds(storage, PLANNED, planned.encode(errors=_BYTES)):
        storage.delete(PLANNED)
    ids: TopicIds = read_ids(storage)
    known = ids
    for topic, move in rewind.topics.items():
        if move.before.id != move.after.id:
            ids = with_id(ids, topic, move.number, move.after.id)
    if ids != known and begun_rewind(storage) == rewind:  # else another one has completed it
        storage.create(TOPICS, dump_topics(ids), overwrite=True)
    storage.delete(REWIND)
    return list(made)


def _read_planned(storage: Storage) -> str | None:
    try:
        return storage.read(PLANNED).decode(errors=_BYTES)
    except NotFoundError:
        return None


def _plan(storage: Storage, after: Mapping[str, TopicEnds]) -> Rewind:
    planned = _read_planned(storage)
    waiting = _waiting(storage, planned)
    before = {topic: newest(storage, topic) for topic in after}
    moves = {
        topic: Move(before[topic][0] + 1, before[topic][1], each)
        for topic, each in after.items()
        if topic in waiting or _differs(each, before[topic][1])
    }
    if moves and (left := sorted(waiting - moves.keys())):
        raise refusal(
            storage,
            f"the batch that was planned last has records of {left[0]}, which would not move: they "
            "would be written twice",
            "start the program once, so that the batch is done; or move that topic, too",
        )
    return Rewind(moves, planned)


def _differs(after: TopicEnds, before: TopicEnds) -> bool:
    # The next start notes the id of a checkpoint that has none.
    return after.ends != before.ends or before.id not in (None, after.id)


def _waiting(storage: Storage, planned: str | None) -> set[str]:
    """Return the topics of which ``planned`` has records that no checkpoint has."""
    try:
        ranges = parse_planned((planned or "").encode(errors=_BYTES)).ranges
    except ValueError:
        return set()
    return {
        each.topic
        for each in ranges
        if newest(storage, each.topic)[1].ends.get(each.partition, 0) < each.end_offset
    }


def _topics(storage: Storage) -> list[str]:
    """Return the topics, without folders of others, such as lost+found."""
    return [topic for topic in topics_of(storage) if kept_numbers(storage, topic)]


def _earlier(storage: Storage, topic: str, shift_by: int) -> TopicEnds:
    found = list(sound(storage, topic).values())
    if shift_by < 1 or shift_by >= len(found):
        raise refusal(
            storage,
            f"{topic} has {len(found) - 1} checkpoints before its newest one, not {shift_by}",
            "go back by as many as there are, or give offsets (--to-offsets)",
        )
    return found[-1 - shift_by]


def _moved(storage: Storage, topic: str, lasts: _Ends, id_now: str | None) -> TopicEnds:
    """Return a topic's newest checkpoint, with other ends for some partitions."""
    _, before = newest(storage, topic)
    if wrong := sorted(p for p, last in lasts.items() if p < 0 or last < -1):
        raise refusal(
            storage,
            f"partition {wrong[0]} of {topic} cannot be at {lasts[wrong[0]]}",
            "give the last offset that counts as done; -1 is before the first record",
        )
    ends = {**before.ends, **{partition: last + 1 for partition, last in lasts.items()}}
    if not any(ends.values()):  # a topic's first record is the first one of any topic
        return TopicEnds(ends, id_now)
    kept = sorted(p for p, end in before.ends.items() if end and p not in lasts)
    if kept and before.id is not None and id_now not in (None, before.id):
        raise KafkaDataLossError(
            f"topic {topic} was deleted and created anew: the offset of partition {kept[0]}, which "
            "is not given, is of the old one",
            operation="rewind",
            path=storage.url,
            ids={"topic": topic},
            hint="give each partition's offset in the new topic; -1 is before its first record",
        )
    return TopicEnds(ends, id_now or before.id)


def _holds(storage: Storage, path: str, data: bytes) -> bool:
    try:
        return storage.read(path) == data
    except NotFoundError:
        return False


@contextmanager
def _locked(storage: Storage) -> Iterator[None]:
    path = local_path(storage, LOCK_NAME)
    if path is None:
        yield
        return
    lock = DriverLock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _conflict(storage: Storage, path: str) -> ConcurrentDriverError:
    return ConcurrentDriverError(
        f"{path} was made since this was planned",
        operation="rewind",
        path=storage.uri(path),
        hint="stop the program, and plan again",
    )
