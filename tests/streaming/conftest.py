"""No program outlives its test."""

from collections.abc import Iterator

import pytest

from penstock.streaming import StreamingContext


@pytest.fixture(autouse=True)
def no_active_program() -> Iterator[None]:
    yield
    active = StreamingContext.getActive()
    if active is not None:
        active.stop(stopSparkContext=False)
