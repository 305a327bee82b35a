"""The seed of tests that strike at random: the same in each run, so that a failure repeats."""

from __future__ import annotations

import os


def storm_seed() -> int:
    """Return the seed, and print it; the environment's STORM_SEED has another one tried."""
    seed = int(os.environ.get("STORM_SEED", "1"))
    print(f"seed {seed}")
    return seed
