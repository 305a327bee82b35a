"""What 1,000 updates of keyed state cost on few and on many keys.

Ours: batches of 1,000 pairs through mapWithState, stepped by a manual clock, from the tick to the
durable commit; the state was loaded as initial state. 5,000 keys against 5,000,000 (200,000 with
--quick). The peer: updateStateByKey of pyspark.streaming with the same pairs and initial state, its
processing time as its listener tells it. It calls its function for every key in every batch, so it
is measured on 500,000 keys at most.
"""

from __future__ import annotations

from typing import Any

from harness import Metric, fresh_process, parse_options, report

_FEW = 5_000
_WARM_BATCHES = 10
_TARGET = 1.5
"""How many times as long a batch may take on many keys as on few."""


def main() -> None:
    """Run each side on each number of keys, in processes of their own."""
    options = parse_options(__doc__)
    many, batches, peer_many = (200_000, 15, 200_000) if options.quick else (5_000_000, 60, 500_000)
    # Few, many, few: what else goes on on the machine meets both.
    before_ms, many_ms, after_ms = (_run("penstock", keys, batches) for keys in (_FEW, many, _FEW))
    few_ms = (before_ms + after_ms) / 2
    peer_few_ms = _run("pyspark", _FEW, batches=12, warm=2)
    peer_many_ms = _run("pyspark", peer_many, batches=3, warm=2)
    metrics = [
        Metric(
            f"1,000 updates on {many:,} keys, to on {_FEW:,}",
            "ms",
            many_ms,
            few_ms,
            round(1 / _TARGET, 3),
            less_is_better=True,
        ),
        Metric(f"on {_FEW:,} keys, to updateStateByKey", "ms", few_ms, peer_few_ms, None, True),
        Metric(
            f"on {many:,} keys, to updateStateByKey on {peer_many:,}",
            "ms",
            many_ms,
            peer_many_ms,
            less_is_better=True,
        ),
    ]
    report("state", metrics, as_json=options.json)


def _run(side: str, keys: int, batches: int, warm: int = _WARM_BATCHES) -> float:
    found: dict[str, Any] = fresh_process(
        "_state_program.py", side, keys, batches, warm, timeout_s=1800
    )
    print(
        f"  {side}, {keys:,} keys: {found['median_ms']:.0f} ms a batch (slowest "
        f"{found['slowest_ms']:.0f}), loaded in {found['load_s']:.1f} s",
        flush=True,
    )
    return float(found["median_ms"])


if __name__ == "__main__":
    main()
