"""The inputs of a program or query: what they have yet to take, and what limits them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from penstock.checkpoint.tools.offsets import streams_of
from penstock.errors import LogFormatError, NotFoundError, PenstockError
from penstock.rate import (
    RATES_FILE,
    EndedBatch,
    KeptRates,
    RateOverride,
    RateOverrides,
    decode_rates,
)
from penstock.status.batches import ReadBatches
from penstock.status.model import MOST_BATCHES, InputStatus, RateChange
from penstock.status.streams import ReadStreams
from penstock.storage import Storage


def read_inputs(
    storage: Storage, read: ReadBatches, journal: ReadStreams, now_ms: int
) -> tuple[tuple[InputStatus, ...], list[str]]:
    """Return the inputs of a location, and what could not be read of their rates."""
    problems: list[str] = []
    rates = dict(read.rates)
    if not read.is_of_penstock:
        rates |= _rates_of_query(storage, problems)
    names = list(dict.fromkeys([*read.ends, *rates]))
    overrides = RateOverrides(storage)
    inputs = []
    for name in names:
        override = RateOverride()
        try:
            override = overrides.get(name)
        except LogFormatError as error:
            problems.append(str(error))
        except PenstockError:  # a name that no file can have
            pass
        taken = streams_of(read.ends.get(name)) or {}
        lag = journal.lag(taken, now_ms)
        kept = rates.get(name, KeptRates(None, ()))
        inputs.append(
            InputStatus(
                name=name,
                lag_records=None if lag is None else lag[0],
                lag_ms=None if lag is None else lag[1],
                max_rate=override.max_rate,
                is_paused=override.paused,
                rate=_rate(kept),
                changes=tuple(map(_change, kept.batches[-MOST_BATCHES:])),
            )
        )
    return tuple(inputs), problems


def _rates_of_query(storage: Storage, problems: list[str]) -> Mapping[str, KeptRates]:
    try:
        return decode_rates(storage.read(RATES_FILE).decode())
    except NotFoundError:
        return {}
    except (PenstockError, UnicodeDecodeError) as error:
        problems.append(str(error))
        return {}


def _rate(kept: KeptRates) -> float | None:
    """Return the limit in effect: the controller's, as it would continue with after a restart."""
    with suppress(KeyError, TypeError, ValueError):
        return float(json.loads(kept.controller or "{}")["rate"])
    return kept.batches[-1].decision.rate if kept.batches else None


def _change(ended: EndedBatch) -> RateChange:
    decision = ended.decision
    return RateChange(
        ended.batch_id,
        decision.time_ms,
        decision.num_elements,
        decision.processing_delay_ms,
        decision.scheduling_delay_ms,
        ended.limit,
        decision.estimate,
        decision.rate,
        decision.why,
    )
