"""How the rate grows with the receivers of one stream: 1, 2 and 4, counted in batches of 1 s.

Each receiver is one of a user's own: it parses JSON lines in Python and stores them in lists, which
are durable before the next one is parsed. One such receiver keeps one core busy at most, so a
second one helps where a core is free, and four on two cores show what they cost each other. What
they receive is made up in their own processes: a sender would take the cores that are to be
measured.

The "peer" is one receiver. Cores are what all processes of the run used, batches included.

--quick leaves four receivers out.
"""

from __future__ import annotations

import os
from functools import partial

from harness import Metric, fresh_process, in_turns, parse_options, report

_COUNTS = (1, 2, 4)


def main() -> None:
    """Run all counts in turns."""
    options = parse_options(__doc__)
    warmup_s, seconds, rounds = (10, 6, 1) if options.quick else (20, 20, 3)
    counts = _COUNTS[:2] if options.quick else _COUNTS
    sides = {f"receivers={n}": partial(_records_per_s, n, warmup_s, seconds) for n in counts}
    rate = in_turns(sides, rounds, "records/s")
    one, *more = rate.values()
    cores = os.cpu_count() or 1
    metrics = [
        Metric(f"{count} receivers, to 1", "records/s", many, one)
        for count, many in zip(counts[1:], more, strict=True)
    ]
    print(f"\n  this machine has {cores} cores")
    report("receivers", metrics, as_json=options.json)


def _records_per_s(receivers: int, warmup_s: int, seconds: int) -> float:
    found = fresh_process(
        "_receivers_program.py", receivers, warmup_s, seconds, timeout_s=warmup_s + seconds + 120
    )
    print(f"  {receivers} receivers: {found['cores']:.2f} cores in use", flush=True)
    return float(found["records"] / found["seconds"])


if __name__ == "__main__":
    main()
