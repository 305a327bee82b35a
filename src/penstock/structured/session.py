"""What the driver's process tells the processes in which Spark runs a data source.

Spark makes a Python data source from its class, in processes of its own, with the options of the
query and nothing else. So the class that is registered is a subclass with the session's facts in
it, and what is known of a query when it starts is in a file of the session's folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

from pyspark.sql.datasource import DataSource

from penstock.errors import ConfigError
from penstock.kafka.client_conf import is_secret
from penstock.structured.private_folder import PrivateFolder

RETAINED = "spark.sql.streaming.minBatchesToRetain"
_TEMPORARY = re.compile(r"temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The folder that Spark makes for a query without a checkpoint location, and deletes."""

_IS_READ = "-read"
_AGAIN_S = 0.05

_Source = TypeVar("_Source", bound=DataSource)


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What the driver knows of a query when it starts."""

    id: str
    """That of its checkpoint location: the same in each run."""
    location: str
    """Its checkpoint location."""
    batches_to_retain: int
    """``spark.sql.streaming.minBatchesToRetain``."""
    place: str = "0"
    """That of the source in the query, by which Spark names its folder in ``sources``."""

    @property
    def is_temporary(self) -> bool:
        """Whether it was given no checkpoint location."""
        return _TEMPORARY.fullmatch(self.location.rstrip("/").rpartition("/")[2]) is not None


@dataclass(frozen=True, slots=True)
class Session:
    """The facts of a Spark session."""

    folder: str
    """A private folder on the driver's host."""
    slots: int
    """How many tasks run at once."""
    batches_to_retain: int
    """``spark.sql.streaming.minBatchesToRetain`` at the registration."""

    def query_of(self, *reads: str) -> QueryFacts | None:
        """Return the query that was last started with a source; None if it is not known.

        Args:
            reads: what ``read_by`` says of it.
        """
        files, name = PrivateFolder(self.folder), _file_of(reads)
        found = files.read(name)
        if found is not None:
            files.write(name + _IS_READ, {})
        return None if found is None else QueryFacts(**found)


def read_by(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return what tells a source from the others of a session: its consumer of a journal.

    Of a source without one, all its options but secrets.
    """
    given = {name.lower(): value for name, value in options.items()}
    consumer = [given[name] for name in ("journal", "stream", "consumer") if name in given]
    if len(consumer) == 3:
        return tuple(consumer)
    return tuple(text for item in sorted(given.items()) if not is_secret(item[0]) for text in item)


def check_in_driver(handle: object, inner: str, operation: str) -> None:
    """Refuse a session of Spark Connect.

    Args:
        handle: the session.
        inner: its attribute in the driver's process.
        operation: what it is for.

    Raises:
        ConfigError: it has none.
    """
    if not hasattr(handle, inner):
        raise ConfigError(
            "the session is one of Spark Connect",
            operation=operation,
            hint="use a program with a session of its own: penstock needs the driver's process",
        )


def tell_query(folder: str, reads: tuple[str, ...], facts: QueryFacts, wait_s: float = 0.0) -> None:
    """Note what a query is, before its readers ask.

    Another query may have started just before from the same DataFrame, and have the same options:
    its readers ask first, in ``wait_s`` at most.
    """
    files, name = PrivateFolder(folder), _file_of(reads)
    other, until_s = files.read(name), time.monotonic() + wait_s
    if other is not None and other["id"] != facts.id:
        while files.read(name + _IS_READ) is None and time.monotonic() < until_s:
            time.sleep(_AGAIN_S)
    files.remove(name + _IS_READ)
    files.write(name, asdict(facts))


def _file_of(reads: tuple[str, ...]) -> str:
    return f"query-{hashlib.sha256(json.dumps(reads).encode()).hexdigest()[:32]}"


def bound_to(source: type[_Source], session: Session) -> type[_Source]:
    """Return a subclass of the source with ``session`` set, which pickles by value."""
    return type(source.__name__, (source,), {"session": session, "__module__": "__main__"})
