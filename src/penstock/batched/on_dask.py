"""Ranges read on Dask's workers; importing this needs distributed."""

from __future__ import annotations

from typing import Any

import streamz
from distributed.client import default_client
from streamz.dask import DaskStream

from penstock.batched.messages import get_message_batch

__all__ = ["ReadOnDask", "loop_of_client"]


class ReadOnDask(DaskStream):  # type: ignore[misc]
    """Emits the future of each range's records.

    streamz would scatter the range first. What is scattered is gone with the worker that has it; a
    task and its arguments are known to the scheduler, which has another worker run it then.
    """

    def __init__(self, upstream: streamz.Stream, keys: bool) -> None:
        super().__init__(upstream)
        self._keys = keys

    def update(self, x: Any, who: Any = None, metadata: Any = None) -> Any:
        """See streamz."""
        # Impure: a range that is read again has to be noted again.
        submit = default_client().submit  # type: ignore[no-untyped-call]
        return self._emit(submit(get_message_batch, *x, keys=self._keys, pure=False), metadata)


def loop_of_client() -> Any:
    """Return the loop that the stream has to run in."""
    return default_client().loop  # type: ignore[no-untyped-call]
