"""One stream of a journal: its description, its writers and their blocks, read by listing.

The directory listing is the block metadata log; there is no second log that could disagree with it.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import (
    AlreadyExistsError,
    DamagedBlockError,
    LogFormatError,
    NewerBlockError,
    NotFoundError,
)
from penstock.journal.block import BlockFooter, read_footer, tail_size
from penstock.journal.description import decode_description, encode_description, other_format
from penstock.journal.layout import (
    WriterId,
    block_path,
    parse_block_start,
    parse_writer,
    stream_info_path,
    writer_folder,
)
from penstock.journal.losses.skipped_block import skipped_footer
from penstock.journal.schema import RecordFormat
from penstock.model import check_name
from penstock.storage import Storage
from penstock.storage.trust import check_trusted

_TAIL_GUESS = 4096
"""Most footers fit in this many bytes, so one read gets them."""
_MAX_MISSED = 16
"""The most epochs that can be claimed during a scan of a folder; a larger gap is damage."""


@dataclass(frozen=True, slots=True, order=True)
class BlockEntry:
    """A block or seal as the listing shows it: its start offset and its size in bytes."""

    start_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class WriterScan:
    """A writer's blocks as one listing showed them, and the footer of the newest."""

    blocks: Sequence[BlockEntry]
    newest: BlockFooter | None
    """None if the writer has neither blocks nor a seal."""
    is_skipped: bool = False
    """Whether the newest block is damaged and skipped; then ``newest`` replaces its footer."""


@dataclass(frozen=True)
class JournalStream:
    """A stream under a journal's root. Small and picklable: it is sent to executors."""

    storage: Storage
    name: str
    format: RecordFormat

    @staticmethod
    def create(storage: Storage, name: str, record_format: RecordFormat) -> JournalStream:
        """Return the stream; creates it if it does not exist.

        Raises:
            ConfigError: the name is not allowed, the stream exists with another schema, or it holds
                pickles and others than this user can write it.
        """
        check_name("stream", name)
        if record_format.kind == "pickle":
            storage = trusted_storage(storage, name)
        try:
            storage.create(stream_info_path(name), encode_description(name, record_format))
        except AlreadyExistsError:
            allow_pickle = record_format.kind == "pickle"
            found = JournalStream.open(storage, name, allow_pickle=allow_pickle)
            if found.format != record_format:
                raise other_format(storage, name, found.format, record_format) from None
            return found
        return JournalStream(storage, name, record_format)

    @staticmethod
    def open(storage: Storage, name: str, *, allow_pickle: bool = False) -> JournalStream:
        """Return an existing stream.

        Args:
            storage: holds the journal.
            name: the stream's.
            allow_pickle: whether its records may be unpickled if they are pickles: that runs code
                that their writer chose. Without it they stay bytes.

        Raises:
            NotFoundError: there is no such stream.
            LogFormatError: its description is damaged or of a newer version.
            ConfigError: it holds pickles, and other users can write to it.
        """
        path = stream_info_path(check_name("stream", name))
        record_format = decode_description(storage.read(path), name, storage.uri(path))
        found = JournalStream(storage, name, record_format)
        return found.trusted() if allow_pickle and found.format.kind == "pickle" else found

    def without_sync(self) -> JournalStream:
        """Return this stream for writing without fsync; see Storage.without_sync."""
        return replace(self, storage=self.storage.without_sync())

    def trusted(self) -> JournalStream:
        """Return this stream for reading pickles of it; see Storage.private.

        Raises:
            ConfigError: others than this user can write it.
        """
        record_format = RecordFormat("pickle") if self.format.kind == "pickle" else self.format
        return replace(self, storage=trusted_storage(self.storage, self.name), format=record_format)

    def folders(self) -> list[str]:
        """Return the names of the stream's folders: its writers', and those of its other files."""
        return [entry.name for entry in self.storage.list(self.name) if entry.is_folder]

    def writers(self, folders: Iterable[str] | None = None) -> list[WriterId]:
        """Return all writers that have claimed an epoch, sorted by receiver and epoch.

        ``folders`` is what ``folders()`` returned; it is called when they are not given.

        Raises:
            LogFormatError: epochs are missing, so a later folder does not match its name.
        """
        names = self.folders() if folders is None else folders
        found = sorted(writer for name in names if (writer := parse_writer(name)))
        complete: list[WriterId] = []
        for receiver, group in itertools.groupby(found, lambda writer: writer.receiver):
            epochs = [writer.epoch for writer in group]
            # Epochs are claimed one after the other. A scan of the folder may show one that was
            # claimed while it ran, and miss the previous one, which must not count as finished.
            if epochs[-1] - len(epochs) >= _MAX_MISSED:
                raise self._epochs_missing(WriterId(receiver, epochs[-1]))
            complete += (WriterId(receiver, epoch) for epoch in range(epochs[-1] + 1))
        return complete

    def blocks(self, writer: WriterId | str) -> list[BlockEntry]:
        """Return a writer's blocks in order, the seal last if there is one."""
        entries = self.storage.list(writer_folder(self.name, writer))
        return [
            BlockEntry(start, entry.size)
            for entry in entries
            if (start := parse_block_start(entry.name)) is not None
        ]

    def footer(
        self, writer: WriterId | str, start_offset: int, size: int | None = None
    ) -> BlockFooter:
        """Return the verified footer of one block; ``size`` as in ``read_tail``.

        Raises:
            NotFoundError: there is no such block.
            DamagedBlockError: its footer fails its checksum.
        """
        path = block_path(self.name, writer, start_offset)
        return read_footer(self.read_tail(path, size), self.storage.uri(path))

    def read_tail(self, path: str, size: int | None = None) -> bytes:
        """Return the end of a block file, with all of its footer; NotFoundError if it is gone.

        ``size`` is the file's size from a listing: it saves a request to an object store.
        """
        start = -_TAIL_GUESS if size is None else max(0, size - _TAIL_GUESS)
        tail = self.storage.read(path, start, size)
        if len(tail) == _TAIL_GUESS and (needed := tail_size(tail)) > _TAIL_GUESS:
            tail = self.storage.read(path, -needed if size is None else max(0, size - needed), size)
        return tail

    def newest(self, writer: WriterId | str, seen: BlockFooter | None = None) -> BlockFooter | None:
        """Return the footer of a writer's newest block or seal, None if it has neither.

        For a damaged block with skipped records, the footer is reconstructed: it ends where the
        loss ends, with the newest position of any earlier block or seal of its receiver. ``seen``
        is an earlier result: while it is valid, no footer is read.

        Raises:
            DamagedBlockError: its footer is damaged, so the writer's end is unknown.
        """
        return self.scan_writer(writer, WriterScan((), seen)).newest

    def scan_writer(self, writer: WriterId | str, seen: WriterScan | None = None) -> WriterScan:
        """Return a writer's blocks, and the newest one's footer as from ``newest``.

        ``seen`` is an earlier scan; its footer is used while that block is the newest.
        """
        footer = seen.newest if seen else None
        while blocks := self.blocks(writer):
            newest = blocks[-1]
            if seen and footer and footer.start_offset == newest.start_offset:
                return replace(seen, blocks=blocks)
            try:
                return WriterScan(blocks, self.footer(writer, newest.start_offset, newest.size))
            except NotFoundError:
                # Retired since it was listed: then a newer one exists.
                if self.blocks(writer) == blocks:
                    raise
            except NewerBlockError:
                raise
            except DamagedBlockError as e:
                if (skipped := skipped_footer(self, str(writer), blocks)) is None:
                    command = f"penstock journal verify {shlex.quote(self.storage.url)} {self.name}"
                    e.hint = (
                        f"restore the file from a copy; if you have none, `{command}` shows how to "
                        "skip its records"
                    )
                    raise
                return WriterScan(blocks, skipped, is_skipped=True)
        return WriterScan((), None)

    def _epochs_missing(self, writer: WriterId) -> LogFormatError:
        path = self.storage.uri(writer_folder(self.name, writer))
        return LogFormatError(
            "a folder has a writer's name, but the epochs before it are missing",
            operation="list writers",
            path=path,
            ids={"stream": self.name, "receiver": writer.receiver},
            hint="if it is a copy, move it out of the journal; otherwise restore the missing "
            "folders",
        )


def trusted_storage(storage: Storage, name: str) -> Storage:
    """Return a storage for the pickles in a folder of a journal; see Storage.private.

    Raises:
        ConfigError: others than this user can write to the folder.
    """
    check_trusted(storage.url)
    check_trusted(f"{storage.url}/{name}")
    return storage.private()
