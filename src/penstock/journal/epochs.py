"""Epochs: how a receiver's next attempt takes over from earlier ones. The next name is the lock.

Invariants:

1. An epoch belongs to one process: it is claimed by the exclusive creation of its ``_writer.json``.
2. Before an epoch is claimed, every earlier one of its receiver is sealed: an empty block has the
   name that its next publish would need. A zombie of that epoch finds the name taken and is fenced;
   if it was faster, its block is seen, and the seal is created after it.
3. So a takeover that fails because of damage or a storage error leaves no epoch behind. The next
   claim uses the folder of a failed claim: its name is available as long as it has no
   ``_writer.json`` and no block or seal.
4. Epochs are sealed in order, so all epochs before one with a block or a seal are sealed. Therefore
   a takeover's cost does not grow with the number of epochs.
5. A seal holds the source's newest known position, so the newest seal has the position even if
   retention has deleted every block. A seal without a position is written only if no earlier file
   of the receiver has one (``JournalStream.newest``).

A crash between any two steps leaves sealed epochs, and perhaps a claimed one without blocks, which
the next attempt seals.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from penstock.errors import AlreadyExistsError
from penstock.journal.block import BlockFooter, encode_block
from penstock.journal.layout import WriterId, block_path, claim_path, writer_folder
from penstock.journal.stream import JournalStream


def claim_writer(stream: JournalStream, receiver: str) -> tuple[WriterId, Any]:
    """Seal all epochs of a receiver, and claim the next one.

    Returns:
        The new writer, and the source's last durable position (None without one).

    Raises:
        ConfigError: the receiver's name is not allowed.
        StorageError: a step failed; the call can be repeated.
        DamagedBlockError: the newest block of an earlier epoch is damaged, so its end is unknown.
    """
    writer = _next_writer(stream, receiver)
    while True:
        position = _seal_before(stream, writer)
        if _claim(stream, writer):
            return writer, position
        # Another process was faster: seal its epoch as well.
        writer = replace(writer, epoch=writer.epoch + 1)


def seal_receiver(stream: JournalStream, receiver: str) -> bool:
    """Seal all epochs of a receiver without a successor.

    Returns:
        Whether one had to be sealed.

    Raises:
        StorageError: a step failed; the call can be repeated.
        DamagedBlockError: its newest block is damaged, so its end is unknown.
    """
    last = _last_epoch(stream, receiver)
    if last < 0:
        return False
    newest = stream.newest(WriterId(receiver, last))
    if newest is not None and newest.sealed:
        return False
    _seal_before(stream, WriterId(receiver, last + 1))
    return True


def publish_seal(stream: JournalStream, writer: WriterId, at: BlockFooter) -> None:
    """Publish the seal that ends a writer after ``at``, its newest block (or an empty start).

    Raises:
        AlreadyExistsError: a block or another seal has that name.
    """
    seal = BlockFooter(at.end_offset, 0, at.position, sealed=True)
    data = encode_block(stream.format.arrow.empty_table(), seal)
    stream.storage.create(block_path(stream.name, writer, seal.start_offset), data)


def _next_writer(stream: JournalStream, receiver: str) -> WriterId:
    """Return the first epoch that can be claimed according to the listing."""
    last = _last_epoch(stream, receiver)
    if last >= 0 and not stream.storage.list(writer_folder(stream.name, WriterId(receiver, last))):
        return WriterId(receiver, last)  # only the folder of a claim that failed
    return WriterId(receiver, last + 1)


def _claim(stream: JournalStream, writer: WriterId) -> bool:
    """Claim an epoch; return False if another process has it."""
    claim = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "claimed": datetime.now(timezone.utc).isoformat(),
    }
    try:
        stream.storage.create(claim_path(stream.name, writer), json.dumps(claim).encode())
    except AlreadyExistsError:
        return False
    return True


def _last_epoch(stream: JournalStream, receiver: str) -> int:
    """Return the newest epoch of a receiver, -1 without one."""
    return max((w.epoch for w in stream.writers() if w.receiver == receiver), default=-1)


def _seal_before(stream: JournalStream, writer: WriterId) -> Any:
    """Seal all epochs before ``writer``; return the source's last durable position."""
    position = None
    for epoch in range(_last_with_files(stream, writer), writer.epoch):
        sealed = WriterId(writer.receiver, epoch)
        position = _seal(stream, sealed, position).position
        stream.storage.sweep(writer_folder(stream.name, sealed))  # of a block it was writing
    return position


def _last_with_files(stream: JournalStream, writer: WriterId) -> int:
    """Return the last epoch before ``writer`` with a block or seal; the first one if none has."""
    for epoch in range(writer.epoch - 1, 0, -1):
        if stream.blocks(WriterId(writer.receiver, epoch)):
            return epoch
    return 0


def _seal(stream: JournalStream, writer: WriterId, inherited: Any) -> BlockFooter:
    """Ensure that a writer is sealed; return its seal. Blocks it published meanwhile count."""
    while True:
        newest = stream.newest(writer) or BlockFooter(0, 0, None)
        if newest.sealed:
            return newest
        if newest.position is None:
            newest = replace(newest, position=inherited)
        try:
            publish_seal(stream, writer, newest)
        except AlreadyExistsError:
            continue  # the writer published once more, or another process sealed it: read again
