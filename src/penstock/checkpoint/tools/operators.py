"""What stateful operators say of themselves. Pure.

    state/<operator>/_metadata/metadata      v1, then {"operatorInfo":...,"stateStoreInfo":[...]}
    state/<operator>/_metadata/v2/<batch>    v2, the same with more fields, for each start

Source: Spark's OperatorStateMetadata (3.5 and later; older ones write none).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.checkpoint.log_format import MalformedLogError, parse_fields, parse_log

_PATH = re.compile(r"state/([^/]+)/_metadata/(?:metadata|v2/(\d+))")


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """An operator's name, and how many partitions each of its stores has."""

    name: str
    partitions: Mapping[str, int]


def newest_infos(paths: Iterable[str]) -> dict[str, str]:
    """Return the paths of the newest descriptions, by operator."""
    found: dict[str, tuple[int, str]] = {}
    for path in paths:
        if match := _PATH.fullmatch(path):
            age = int(match[2]) if match[2] else -1
            found[match[1]] = max(found.get(match[1], (-1, path)), (age, path))
    return {operator: path for operator, (_, path) in found.items()}


def parse_operator_info(data: bytes) -> OperatorInfo:
    """Return what a description says.

    Raises:
        MalformedLogError: Spark could not read it either.
    """
    _, lines = parse_log(data)
    fields = parse_fields(lines[0] if lines else "")
    try:
        name = fields["operatorInfo"]["operatorName"]
        partitions = {s["storeName"]: s["numPartitions"] for s in fields["stateStoreInfo"]}
    except (KeyError, TypeError) as error:
        raise MalformedLogError(
            f"Log file was malformed: {fields} describes no operator"
        ) from error
    if not _are_valid(name, partitions):
        raise MalformedLogError(f"Log file was malformed: {fields} describes no operator")
    return OperatorInfo(name, partitions)


def _are_valid(name: Any, partitions: Mapping[Any, Any]) -> bool:
    counts = partitions.values()
    texts = (name, *partitions)
    return all(isinstance(t, str) for t in texts) and all(map(_is_count, counts))


def _is_count(value: object) -> bool:
    """Whether a value is a number of partitions: a positive Java int."""
    return type(value) is int and 0 < value < 2**31
