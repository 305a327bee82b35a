"""What 1,000 updates of keyed state cost on few and on many keys.

Ours: batches of 1,000 pairs through mapWithState, stepped by a manual clock, from the tick to the
durable commit; the state was loaded as initial state. 5,000 keys against 5,000,000 (200,000 with
--quick). The peer: updateStateByKey of pyspark.streaming with the same pairs and initial state, its
processing time as its listener tells it. It calls its function for every key in every batch.
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
    many, batches = (200_000, 15) if options.quick else (5_000_000, 60)
    few_ms, many_ms = (_run("penstock", keys, batches) for keys in (_FEW, many))
    peer_batches = {_FEW: 12, many: 3}
    peer_ms = {keys: _run("pyspark", keys, n, warm=2) for keys, n in peer_batches.items()}
    metrics = [
        Metric(
            f"1,000 updates on {many:,} keys, to on {_FEW:,}",
            "ms",
            many_ms,
            few_ms,
            round(1 / _TARGET, 3),
            less_is_better=True,
        ),
        *(
            Metric(
                f"1,000 updates on {keys:,} keys, to updateStateByKey",
                "ms",
                ours_ms,
                peer_ms[keys],
                less_is_better=True,
            )
            for keys, ours_ms in ((_FEW, few_ms), (many, many_ms))
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
