"""Inputs over a journal: through receivers, or written by another program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pyarrow as pa
from pyspark import StorageLevel

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
from penstock.streaming.inputs.journal_input import JournalInputDStream
from penstock.streaming.inputs.receiver_input import ReceiverInputDStream
from penstock.streaming.inputs.shared_journal import SharedJournalDStream
from penstock.streaming.inputs.sources.combined import CombinedStreams


class PushedStreams(CombinedStreams):
    """The part of a StreamingContext that makes streams of receivers and journals."""

    def receiverStream(
        self, receiver: Receiver | Sequence[Receiver], name: str | None = None
    ) -> ReceiverInputDStream:
        """Return the stream of the records of one receiver, or of several.

        Args:
            receiver: runs on an executor; its records go through the journal. Of several each has
                a task and a writer of its own, spread over the executors; they share the stream's
                name, offsets and rate limit. Their number may change between runs.
            name: the stream's name in the journal and in the offsets; give one to keep a stream's
                data when the program's inputs change order.

        Raises:
            ConfigError: the arguments are not receivers, or their schemas differ.
        """
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

        ``storageLevel`` exists for compatibility and has no effect: records live in the journal,
        not in executors' memory. More ``receivers`` than one connect each on their own, to a server
        that shares its lines out over its clients.
        """
        return self._received([SocketReceiver(hostname, port)] * receivers, name, "socket")

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
        return self._received(receiver, name, "socket")

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

        ``HttpReceiver`` has more arguments; pass one to ``receiverStream`` to use them.

        Args:
            port: TCP port, opened on the executor that the receiver runs on; 0 is any free one.
            host: name or address to bind to. One that others can reach needs a ``token_file``.
            schema: what a record is: ``"string"``, ``"binary"``, or columns: as text with Arrow's
                types (``"page string, at timestamp[us, UTC]"``), as the path of a file, or as a
                ``pyarrow.Schema``.
            token_file: path of a file with the bearer token that requests must carry.
            tls_certificate: path of a PEM file with the certificate and its chain: serves HTTPS.
            tls_key: path of a PEM file with its key.
            name: see ``receiverStream``.

        Raises:
            ConfigError: an argument cannot work, or the extra ``http`` is not installed.
        """
        receiver = HttpReceiver(
            host,
            port,
            schema=schema,
            token_file=token_file,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
        )
        return self._received(receiver, name, "http")

    def tailStream(
        self, path: str | Sequence[str], name: str | None = None
    ) -> ReceiverInputDStream:
        """Return the stream of lines of files, followed through rotation, each line exactly once.

        What the files have at the first start is read first. To begin at their ends instead, use
        ``receiverStream(TailReceiver(path, from_beginning=False))``.

        Args:
            path: a file, a glob, or several of them. Globs are expanded where the receiver runs, on
                an executor, again and again. A relative one is made absolute here first, from
                this program's working directory: an executor has one of its own.
            name: see ``receiverStream``.
        """
        return self._received(TailReceiver(path), name, "tail")

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
        return self._received([receiver] * receivers, name, "mqtt")

    def journalStream(
        self,
        stream: str,
        journal: str,
        name: str | None = None,
        consumer: str | None = None,
        startingOffsets: StartingOffsets = "earliest",
        *,
        allow_pickle: bool = False,
    ) -> JournalInputDStream:
        """Return a stream of a journal that another program writes, without a receiver.

        That is a journal of ``penstock ingest``, or of another program's receivers. Programs read
        it at once, each at its own pace: this one is registered as a consumer before its first
        batch, and blocks are kept until every consumer is past them. It needs a checkpoint
        location.

        Args:
            stream: the stream's name in the journal. It must be there: what writes it makes it.
            journal: the journal: a path or an fsspec URL, that driver and executors share.
            name: the stream's name in the offsets, and in this program; ``stream`` by default.
            consumer: the name to be registered under; by default it is made of the application's
                name, ``name`` and the checkpoint location's id, and stays over restarts.
                `penstock journal consumers` lists consumers, with location and last commit, and
                removes those of programs that are gone.
            startingOffsets: where a new consumer begins: "earliest" is the oldest block that is
                held, "latest" what comes from the first start on.
            allow_pickle: whether to read a stream whose records are pickles. To read one runs the
                code that its writer chose, so no user but this one (and root) may be able to write
                the journal.

        Raises:
            ConfigError: there is no such stream, a name is not allowed, or the stream holds pickles
                and ``allow_pickle`` is False, or others can write the journal.
        """
        return SharedJournalDStream(
            self._context,
            stream,
            journal,
            name,
            consumer,
            startingOffsets,
            allow_pickle=allow_pickle,
        )

    def _received(
        self, receiver: Receiver | Sequence[Receiver], name: str | None, kind: str
    ) -> ReceiverInputDStream:
        """Return the stream of receivers; without a name it is called by its kind and place."""
        usual = f"{kind}-{len(self._context.graph.inputs)}"
        stream = ReceiverInputDStream(self._context, receiver, usual if name is None else name)
        stream.is_named = name is not None
        return stream
