"""Which name, and so position, a receiver of a changed list continues under. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.checkpoint.unnamed_parts import Part
from penstock.driver.receiver_names import settle_receivers


def receiver(name: str, made_of: str, detail: str = "") -> Part:
    return Part("receiver", name, made_of, made_of, detail)


A, B = receiver("r0", "TailReceiver", "a"), receiver("r1", "TailReceiver", "b")
HTTP = receiver("r2", "HttpReceiver")


@pytest.mark.parametrize(
    ("before", "now", "names"),
    [
        ([], [A, B], "r0 r1"),
        ([A, B], [A, B], "r0 r1"),
        ([A, B], [B, A], "r1 r0"),
        ([A, B], [B], "r1"),
        ([A, B], [HTTP, A, B], "r2 r0 r1"),
        ([A, B], [B, receiver("r1", "TailReceiver", "moved")], "r1 r0"),
        (
            [A, B],
            [receiver("r0", "TailReceiver", "c"), receiver("r1", "TailReceiver", "d")],
            "r0 r1",
        ),
        ([A, HTTP], [HTTP], "r2"),
        ([A], [HTTP], "r1"),
        ([A], [A, A, A], "r0 r1 r2"),
        ([A, receiver("r1", "TailReceiver", "a")], [A], "r0"),
    ],
)
def test_receivers_of_a_stream(before: list[Part], now: list[Part], names: str) -> None:
    now = [replace(part, name=f"r{place}") for place, part in enumerate(now)]
    assert settle_receivers(before, now) == [name for name in names.split()]
