"""Which topic filters match what others match. Pure.

A broker may deliver a message once for each subscription that it matches (MQTT 5, 3.3.4), so only
those filters are subscribed to that no other one covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, zip_longest

_SHARED = "$share"


def uncovered(filters: Sequence[str]) -> tuple[str, ...]:
    """Return the filters without those whose messages another one brings, too; in their order."""
    different = tuple(dict.fromkeys(filters))
    return tuple(
        each
        for each in different
        if not any(other != each and _covers(other, each) for other in different)
    )


def overlapping(filters: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of filters that can match the same topic."""
    return [(a, b) for a, b in combinations(filters, 2) if _overlap(a, b)]


def _covers(wide: str, narrow: str) -> bool:
    (group, wide_levels), (other, narrow_levels) = _split(wide), _split(narrow)
    if group != other or _is_hidden(narrow_levels, wide_levels):
        return False
    for level, within in zip_longest(wide_levels, narrow_levels):
        if level == "#":
            return True
        if within == "#" or level is None or within is None or level not in ("+", within):
            return False
    return True


def _overlap(one: str, another: str) -> bool:
    (group, ours), (other, theirs) = _split(one), _split(another)
    if group != other or _is_hidden(ours, theirs) or _is_hidden(theirs, ours):
        return False
    for level, with_it in zip_longest(ours, theirs):
        if "#" in (level, with_it):
            return True
        if level is None or with_it is None:
            return False
        if level != with_it and "+" not in (level, with_it):
            return False
    return True


def _split(topic: str) -> tuple[str | None, list[str]]:
    """Return the share group, if there is one, and the levels."""
    levels = topic.split("/")
    if levels[0] == _SHARED and len(levels) > 2:
        return levels[1], levels[2:]
    return None, levels


def _is_hidden(levels: list[str], wildcards: list[str]) -> bool:
    """Whether topics begin with ``$``, which a wildcard in the first place does not match."""
    return levels[0].startswith("$") and wildcards[0] in ("#", "+")
