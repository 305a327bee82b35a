"""What a batch costs besides its Spark job, and whether that grows with the batches done.

Overhead: batches of one record, stepped by a manual clock, in turns with the bare job that such a
batch runs (the same block, read and counted the same way). "Ours" is the whole batch, from the tick
to its durable commit; the budget it is compared with is the bare job and 10 ms.

Tiny blocks: batches over 200 blocks of 30 records, in turns with batches over one such block: many
single records with durable acks make many small files, and the batch must not pay for each.

Growth: the same program with an output that does nothing, so that only the engine is timed: plan,
offsets, scheduling, commit, retention. The median of 100 batches after 10 is compared with that of
100 batches after 10,000 (500 with --quick), and with durable small files made in turns with
them.

--quick leaves RDDs ("python") out.
"""

from __future__ import annotations

from harness import Metric, fresh_process, parse_options, report

_BUDGET_MS = 10.0
_MOST_FILES = 3
"""Durable small files that a batch of the engine alone may take as long as; it needs two."""


def main() -> None:
    """Run each part in a process of its own."""
    options = parse_options(__doc__)
    batches, late = (20, 500) if options.quick else (150, 10_000)
    paths = ("dataframe",) if options.quick else ("dataframe", "python")
    metrics = []
    for path in paths:
        found = fresh_process("_batch_program.py", "overhead", path, batches, timeout_s=300)
        over_ms = found["batch_ms"] - found["bare_ms"]
        print(
            f"  {path}: batch {found['batch_ms']:.1f} ms, bare job {found['bare_ms']:.1f} ms, "
            f"overhead {over_ms:.1f} ms (in {batches} pairs: {found['over_ms']:.1f} ms)",
            flush=True,
        )
        budget_ms = found["bare_ms"] + _BUDGET_MS
        name = f"one-record batch, {path}, to bare job + {_BUDGET_MS:g} ms"
        metrics.append(Metric(name, "ms", found["batch_ms"], budget_ms, 1.0, less_is_better=True))
    for path in paths:
        found = fresh_process("_batch_program.py", "blocks", path, batches // 4, timeout_s=300)
        name = f"batch over 200 tiny blocks, {path}, to over one"
        metrics.append(
            Metric(name, "ms", found["many_ms"], found["one_ms"], 0.5, less_is_better=True)
        )
    found = fresh_process("_batch_program.py", "growth", "engine", late, timeout_s=900)
    print(
        f"  engine alone: {found['early_ms']:.2f} ms after 10 batches, "
        f"{found['late_ms']:.2f} ms after {late:,}"
    )
    name = f"engine alone after {late:,} batches, to after 10"
    metrics.append(
        Metric(name, "ms", found["late_ms"], found["early_ms"], 0.8, less_is_better=True)
    )
    name = f"engine alone after {late:,} batches, to {_MOST_FILES} durable files"
    files_ms = _MOST_FILES * found["file_ms"]
    metrics.append(Metric(name, "ms", found["late_ms"], files_ms, 1.0, less_is_better=True))
    report("batch", metrics, as_json=options.json)


if __name__ == "__main__":
    main()
