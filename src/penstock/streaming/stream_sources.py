"""What a program makes its streams with: inputs, and operations on several streams.

Same names and meaning as the methods of ``pyspark.streaming.StreamingContext``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
from pyspark import RDD, SparkContext, StorageLevel

from penstock.errors import ConfigError
from penstock.journal.retention.registration import StartingOffsets
from penstock.receivers import (
    FramedSocketReceiver,
    HttpReceiver,
    MqttReceiver,
    Receiver,
    SocketReceiver,
    TailReceiver,
)
from penstock.streaming.dstream import DStream, UnionDStream, transformed
from penstock.streaming.files import BinaryRecords, FileInputDStream, TextLines
from penstock.streaming.graph import DStreamGraph
from penstock.streaming.inputs import QueueInputDStream
from penstock.streaming.journal_input import JournalInputDStream
from penstock.streaming.receiver_input import ReceiverInputDStream
from penstock.streaming.shared_journal import SharedJournalDStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["StreamSources"]


class StreamSources(ABC):
    """The part of a StreamingContext that makes streams."""

    graph: DStreamGraph

    @property
    @abstractmethod
    def sparkContext(self) -> SparkContext:
        """Return the SparkContext of this program."""

    def receiverStream(
        self, receiver: Receiver | Sequence[Receiver], name: str | None = None
    ) -> ReceiverInputDStream:
        """Return the stream of what a receiver stores, or several of them together.

        Args:
            receiver: runs on an executor; its records go through the journal. Of several each has
                a task and a writer of its own, spread over the executors; they share the stream's
                name, offsets and rate limit. Their number may change between runs.
            name: the stream's name in the journal and in the offsets; give one to keep a stream's
                data when the program's inputs change order.
        """
        several = [receiver] if isinstance(receiver, Receiver) else receiver
        if not isinstance(several, Sequence) or not all(isinstance(r, Receiver) for r in several):
            raise ConfigError(
                f"{receiver!r} is no receiver",
                operation="receiverStream",
                hint="give an instance of a subclass of penstock.receivers.Receiver",
            )
        return ReceiverInputDStream(self._context, receiver, name)

    def socketTextStream(
        self,
        hostname: str,
        port: int,
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
        name: str | None = None,
        receivers: int = 1,
    ) -> ReceiverInputDStream:
        """Return the stream of lines that a TCP server sends.

        ``storageLevel`` is taken for compatibility and has no effect: records live in the journal,
        not in executors' memory. More ``receivers`` than one connect each on their own, to a server
        that shares its lines out over its clients.
        """
        return self.receiverStream(
            [SocketReceiver(hostname, port)] * receivers,
            self._name("socket") if name is None else name,
        )

    def socketStream(
        self,
        hostname: str,
        port: int,
        *,
        lengthBytes: int = 4,
        byteorder: Literal["big", "little"] = "big",
        maxRecordBytes: int = 16 << 20,
        name: str | None = None,
    ) -> ReceiverInputDStream:
        """Return the stream of records (bytes) that a TCP server sends, each after its length.

        Takes the place of Spark's ``socketStream(hostname, port, converter, storageLevel)`` of
        Scala and Java: instead of a converter from the connection's bytes to objects, a framing
        that needs no user code in the receiver; ``map`` makes objects of the records.

        Args:
            hostname: the server.
            port: its TCP port.
            lengthBytes: how many bytes the length takes: 1, 2, 4 or 8; unsigned, of the record
                alone.
            byteorder: of the length, ``"big"`` or ``"little"``.
            maxRecordBytes: a longer record ends the connection with an error.
            name: see ``receiverStream``.
        """
        receiver = FramedSocketReceiver(
            hostname,
            port,
            length_bytes=lengthBytes,
            byteorder=byteorder,
            max_record_bytes=maxRecordBytes,
        )
        return self.receiverStream(receiver, self._name("socket") if name is None else name)

    def httpStream(
        self,
        port: int = 8080,
        *,
        host: str = "127.0.0.1",
        schema: str | pa.Schema = "string",
        token_file: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        name: str | None = None,
    ) -> ReceiverInputDStream:
        """Return the stream of records that clients POST; they are answered when it is durable.

        See penstock.receivers.HttpReceiver for the arguments, and for more of them
        (``receiverStream`` takes one), ``receiverStream`` for ``name``. The port is opened on the
        executor that the receiver runs on.
        """
        receiver = HttpReceiver(
            host,
            port,
            schema=schema,
            token_file=token_file,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
        )
        return self.receiverStream(receiver, self._name("http") if name is None else name)

    def tailStream(
        self, path: str | Sequence[str], name: str | None = None
    ) -> ReceiverInputDStream:
        """Return the stream of lines appended to files, followed as ``tail -F`` does, exactly once.

        Args:
            path: a file, a glob, or several of them, as the executor that follows them sees them.
            name: see ``receiverStream``.
        """
        return self.receiverStream(TailReceiver(path), self._name("tail") if name is None else name)

    def journalStream(
        self,
        stream: str,
        journal: str,
        name: str | None = None,
        consumer: str | None = None,
        startingOffsets: StartingOffsets = "earliest",
    ) -> JournalInputDStream:
        """Return a stream of a journal that somebody else writes, with no receiver of its own.

        That is a journal of ``penstock ingest``, or of another program's receivers. Programs read
        it at once, each at its own pace: this one is registered as a consumer before its first
        batch, and blocks are kept until every consumer is past them. It needs a checkpoint
        location.

        Args:
            stream: the stream's name in the journal. It must be there: what writes it makes it.
            journal: the journal: a path or an fsspec URL, that driver and executors share.
            name: the stream's name in the offsets, and in this program; ``stream`` by default.
            consumer: the name to be registered under; by default one that belongs to this
                checkpoint location, over restarts. `penstock journal consumers` lists them and
                removes those of programs that are gone.
            startingOffsets: where a new consumer begins: "earliest" is the oldest block that is
                held, "latest" what comes from the first start on.

        Raises:
            ConfigError: there is no such stream, or a name is not allowed.
        """
        return SharedJournalDStream(self._context, stream, journal, name, consumer, startingOffsets)

    def mqttStream(
        self,
        host: str,
        port: int = 1883,
        topics: str | Sequence[str] = (),
        *,
        name: str | None = None,
        qos: int = 1,
        client_id: str | None = None,
        version: str = "3.1.1",
        share_group: str | None = None,
        username: str | None = None,
        password_file: str | None = None,
        tls: bool = False,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
        receivers: int = 1,
    ) -> ReceiverInputDStream:
        """Return the stream of messages that an MQTT broker delivers, acknowledged when durable.

        Records are dicts, and rows on the DataFrame path: ``topic`` (str), ``payload`` (bytes),
        ``qos``, ``retained``, ``received_ms``. The arguments are those of
        ``penstock.receivers.MqttReceiver``, and ``name``, for which see ``receiverStream``: it is
        part of the client id, so of the session at the broker, unless ``client_id`` is given. More
        ``receivers`` than one share the messages out as a ``share_group``.

        Raises:
            ConfigError: several receivers have no group, so each would get every message.
        """
        if receivers > 1 and share_group is None:
            raise ConfigError(
                f"{receivers} receivers without a share_group would each get every message",
                operation="mqttStream",
                hint="name a share_group, or use one receiver",
            )
        receiver = MqttReceiver(
            host,
            port,
            topics,
            qos=qos,
            client_id=client_id,
            version=version,
            share_group=share_group,
            username=username,
            password_file=password_file,
            tls=tls,
            tls_ca=tls_ca,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
        )
        return self.receiverStream(
            [receiver] * receivers, self._name("mqtt") if name is None else name
        )

    def textFileStream(self, directory: str, name: str | None = None) -> DStream:
        """Return the stream of lines (UTF-8) of new files in a directory; see ``fileStream``."""
        return self.fileStream(directory, name=name)

    def binaryRecordsStream(
        self, directory: str, recordLength: int, name: str | None = None
    ) -> DStream:
        """Return the stream of records of ``recordLength`` bytes of new files in a directory.

        See ``fileStream`` for which files are taken.
        """
        return FileInputDStream(self._context, directory, BinaryRecords(recordLength), name=name)

    def fileStream(
        self,
        directory: str,
        filter: Callable[[str], bool] | None = None,
        newFilesOnly: bool = True,
        name: str | None = None,
    ) -> DStream:
        """Return the stream of lines of new files in a directory, each file exactly once.

        A batch takes the files modified up to its time, and after the earliest time that a late
        file may have: ``spark.streaming.fileStream.minRememberDuration`` (60 s) ago, or the last
        batch of the run before. Files must come whole: write them elsewhere in the same file
        system and move them in. Names that begin with ``_`` or ``.`` or end with ``._COPYING_``,
        and folders, are passed over. Files stay where they are; a file may go when its batch is
        committed and no window needs it.

        Args:
            directory: a path or URL of any file system that Spark knows, or a glob of directories.
            filter: is asked with each new file's URL whether to take it.
            newFilesOnly: whether the first batch leaves out files that were modified before the
                stream was made; otherwise it goes back as far as a late file may.
            name: the stream's name in the offsets; give one to keep a stream's place when the
                program's inputs change order.

        Raises:
            ConfigError: the filter is no function.
        """
        return FileInputDStream(
            self._context,
            directory,
            TextLines(),
            wanted=filter,
            new_files_only=newFilesOnly,
            name=name,
        )

    def queueStream(
        self,
        rdds: Iterable[RDD[Any] | Iterable[Any]],
        oneAtATime: bool = True,
        default: RDD[Any] | Iterable[Any] | None = None,
    ) -> DStream:
        """Return the stream of a list of RDDs or lists, for tests. Changes of it are not seen."""
        queue = [self._as_rdd(item) for item in rdds]
        standby = None if default is None else self._as_rdd(default)
        return QueueInputDStream(self._context, queue, oneAtATime, standby)

    # -- operations on several streams --

    def transform(
        self, dstreams: Sequence[DStream], transformFunc: Callable[[list[RDD[Any]]], RDD[Any]]
    ) -> DStream:
        """Return the stream of ``transformFunc([rdd, ...])`` over one RDD of each stream."""
        if not dstreams:
            raise ConfigError(
                "no streams were given", operation="transform", hint="give at least one DStream"
            )
        return transformed(self._context, "transform", tuple(dstreams), _OfList(transformFunc))

    def union(self, *dstreams: DStream) -> DStream:
        """Return one stream with the records of all."""
        if not dstreams:
            raise ConfigError(
                "should have at least one DStream to union",
                operation="union",
                hint="give at least one DStream",
            )
        return dstreams[0] if len(dstreams) == 1 else UnionDStream(self._context, dstreams)

    # -- inside --

    @property
    def _context(self) -> StreamingContext:
        return cast("StreamingContext", self)

    def _name(self, kind: str) -> str:
        return f"{kind}-{len(self.graph.inputs)}"

    def _as_rdd(self, item: RDD[Any] | Iterable[Any]) -> RDD[Any]:
        return item if isinstance(item, RDD) else self.sparkContext.parallelize(list(item))


class _OfList:
    """Calls a function of a list of RDDs with RDDs as arguments; pickles as the function does."""

    def __init__(self, func: Callable[[list[RDD[Any]]], RDD[Any]]) -> None:
        self._func = func

    def __call__(self, *rdds: RDD[Any]) -> RDD[Any]:
        return self._func(list(rdds))
