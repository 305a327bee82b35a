"""What is kept of rates with the batches."""

from __future__ import annotations

import pytest

from penstock.errors import LogFormatError
from penstock.rate import EndedBatch, KeptRates, RateDecision, decode_rates, encode_rates

KEPT = {
    "clicks": KeptRates(
        '{"version": 1, "rate": 900.5}',
        (
            EndedBatch(7, 850.25, RateDecision(1000, 850, 900, 3, 900.5, 900.5, "target: ü")),
            EndedBatch(8, None, RateDecision(2000, 0, 0, 0, None, 900.5, "")),
        ),
    ),
    "fixed": KeptRates(None, ()),
}


def test_rates_come_back_as_they_were() -> None:
    assert decode_rates(encode_rates(KEPT)) == KEPT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"clicks": 3}',
        '{"clicks": {"controller": null}}',
        '{"clicks": {"controller": 5, "batches": []}}',
        '{"clicks": {"controller": null, "batches": [{"batch_id": 1}]}}',
        encode_rates(KEPT).replace("850.25", '"many"'),
        encode_rates(KEPT).replace('"rate":900.5', '"rate":NaN'),
    ],
)
def test_damage_is_named(text: str) -> None:
    with pytest.raises(LogFormatError, match="cannot be read"):
        decode_rates(text)
