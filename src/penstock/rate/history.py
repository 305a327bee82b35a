r"""The rates that a program stores in its checkpoint location, for restarts and as a history.

Each entry of the offset log holds, in its ``conf`` under ``spark.penstock.rates``, for each input
that has a limit, the state that its controller needs after a restart, and the batches that ended
since the previous entry:

    {"clicks": {"controller": "{\"version\": 1, \"rate\": 900.0}",
                "batches": [{"batch_id": 7, "limit": 900.0, "decision": {"rate": 900.0, ...}}]}}

So the history needs no file of its own, is as durable as the batches, and is retired with them. It
does not include batches that ended after the newest entry was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from penstock.errors import LogFormatError
from penstock.rate.controller import RateDecision

RATES_KEY = "spark.penstock.rates"
"""Their key in the conf of an offset log entry."""

RATES_FILE = "penstock/rates.json"
"""Where they are in the checkpoint of a Structured Streaming query."""


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """A batch of one input that ended: a line of the rate's history."""

    batch_id: int
    limit: float | None
    """Its limit in records, including fractions; None if unknown."""
    decision: RateDecision


@dataclass(frozen=True, slots=True)
class KeptRates:
    """The rates of one input in one entry."""

    controller: str | None
    """The result of RateController.to_json; None without back pressure."""
    batches: tuple[EndedBatch, ...]


def encode_rates(rates: Mapping[str, KeptRates]) -> str:
    """Return the text of an entry's rates, by input name."""
    values = {stream: asdict(kept) for stream, kept in rates.items()}
    return json.dumps(values, separators=(",", ":"))


def decode_rates(text: str) -> dict[str, KeptRates]:
    """Return the rates in an entry's text, by input name.

    Raises:
        LogFormatError: it is not a text of ``encode_rates``.
    """
    try:
        return {stream: _kept(**values) for stream, values in json.loads(text).items()}
    except (AttributeError, TypeError, ValueError) as e:
        raise LogFormatError(
            f"the rates stored with a batch cannot be read: {text[:200]!r}",
            operation="read rates",
            hint="run the version of penstock that wrote them",
        ) from e


def _kept(controller: Any, batches: Any) -> KeptRates:
    if not (controller is None or isinstance(controller, str)):
        raise TypeError(f"controller is {controller!r}")
    return KeptRates(controller, tuple(_batch(**each) for each in batches))


def _batch(batch_id: Any, limit: Any, decision: Any) -> EndedBatch:
    found = RateDecision(**decision)
    *numbers, why = astuple(replace(found, estimate=found.estimate or 0))
    numbers += [batch_id, limit or 0]
    if not (isinstance(why, str) and all(isinstance(each, (int, float)) for each in numbers)):
        raise TypeError(f"a value is of another type: {decision!r}")
    if not 0 < found.rate < math.inf:
        raise ValueError(f"the rate is {found.rate!r}")
    return EndedBatch(batch_id, limit, found)
