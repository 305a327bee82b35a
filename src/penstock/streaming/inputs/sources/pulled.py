"""Inputs that each batch fetches itself: Kafka topics, new files, and queues for tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock.kafka.client_conf import check_kafka_client
from penstock.streaming.inputs.files.file_stream import FileInputDStream
from penstock.streaming.inputs.files.reading import BinaryRecords, TextLines
from penstock.streaming.inputs.queue_input import QueueInputDStream
from penstock.streaming.inputs.sources.combined import CombinedStreams
from penstock.streaming.operations.dstream import DStream

if TYPE_CHECKING:
    from penstock.kafka.advance import OnDataLoss
    from penstock.streaming.inputs.kafka_input import Starting
    from penstock.streaming.inputs.refused import BadRecords


class PulledStreams(CombinedStreams):
    """The part of a StreamingContext that makes streams of topics, files and queues."""

    def kafkaStream(
        self,
        topics: str | Sequence[str] | re.Pattern[str],
        conf: Mapping[str, Any],
        starting: Starting = "latest",
        *,
        keyDecoder: Callable[[bytes], Any] | None = None,
        valueDecoder: Callable[[bytes], Any] | None = None,
        columns: Sequence[str] | None = None,
        on_data_loss: OnDataLoss = "fail",
        bad_records: BadRecords = "fail",
        name: str | None = None,
    ) -> DStream:
        """Return the stream of the records of Kafka topics, each exactly once; see docs/kafka.md.

        Each batch takes a range of offsets of each partition, which is durable in the checkpoint
        location before it is read, on executors, straight from the brokers. Records are
        ``KafkaRecord``; ``foreachBatch`` has the columns of Spark's Kafka source. The record count
        of a batch is the number of its offsets: compaction and transactions leave some unused.

        Args:
            topics: their names (a str is one), or a pattern that whole names match: topics and
                partitions that come later are read from their beginning.
            conf: librdkafka's settings, with ``bootstrap.servers``. ``isolation.level`` is
                ``read_committed`` unless given. A secret may be given as the path of a file on
                each host: ``sasl.password.file`` for ``sasl.password``.
            starting: where the first batch in the life of the checkpoint location begins:
                ``"latest"``, ``"earliest"``, a datetime (without a zone: the driver's local time),
                or ``{topic: {partition: offset}}``, partitions that are not named beginning at
                their earliest offset.
            keyDecoder: makes a key of its bytes; keys are bytes without it.
            valueDecoder: makes a value of its bytes; values are bytes without it.
            columns: of ``foreachBatch``'s DataFrame, all without it; few are faster.
            bad_records: what happens with records that a decoder raises for: ``"fail"``,
                ``"drop"`` or ``"dead_letter"``; see docs/bad-records.md.
            on_data_loss: what happens when records are gone before they were read, by retention:
                ``"fail"`` ends the program, ``"earliest"`` and ``"latest"`` note the lost range in
                the loss log and continue at the partition's beginning, or its end. A topic that
                was deleted and created again ends the program in any case.
            name: the stream's name in the checkpoint location.

        Raises:
            ConfigError: an argument is wrong, or confluent-kafka is not installed.

        Source: seed 001; ``org.apache.spark.streaming.kafka010.KafkaUtils.createDirectStream``.
        """
        check_kafka_client("kafkaStream")
        from penstock.kafka.records import COLUMNS
        from penstock.streaming.inputs.kafka_input import KafkaInputDStream

        return KafkaInputDStream(
            self._context,
            topics,
            conf,
            starting=starting,
            decoders=(keyDecoder, valueDecoder),
            columns=tuple(COLUMNS) if columns is None else columns,
            on_data_loss=on_data_loss,
            bad_records=bad_records,
            name=name,
        )

    def textFileStream(self, directory: str, name: str | None = None) -> DStream:
        """Return the stream of lines (UTF-8) of new files in a directory; see ``fileStream``.

        A byte order mark is not part of the first line. Local files in UTF-16 are left out, with an
        error in the log; elsewhere they are read as if they were UTF-8, as Spark does.
        """
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
            ConfigError: the filter is not a function.
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

    def _as_rdd(self, item: RDD[Any] | Iterable[Any]) -> RDD[Any]:
        return item if isinstance(item, RDD) else self.sparkContext.parallelize(list(item))
