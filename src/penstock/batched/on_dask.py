"""The streams between ``scatter`` and ``gather``; importing this needs distributed."""

from __future__ import annotations

import streamz.dask

from penstock.batched.streamz import EndsSources, HoldsReferences, Stream, register


class DaskStream(HoldsReferences, streamz.dask.DaskStream):  # type: ignore[misc]
    """Streams of Dask's futures: nothing waits for these before ``gather``."""


class scatter(DaskStream, streamz.dask.scatter):  # type: ignore[misc]  # noqa: N801 - its name
    """See streamz."""


DaskStream.register_api()(type("gather", (Stream, streamz.dask.gather), {}))
register(DaskStream, streamz.dask, "accumulate combine_latest map starmap union zip")
register(DaskStream, streamz.dask, "buffer", EndsSources)
