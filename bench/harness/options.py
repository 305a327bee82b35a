"""The options that every benchmark takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Options", "parse_options"]


@dataclass(frozen=True)
class Options:
    """``quick``: a small size. ``json``: the figures once more, as one line at the end."""

    quick: bool
    json: bool
    extra: argparse.Namespace


def parse_options(
    description: str | None, add: Callable[[argparse.ArgumentParser], object] | None = None
) -> Options:
    """Parse the command line; ``add`` may define arguments of one benchmark's own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run a small size")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    if add is not None:
        add(parser)
    found = parser.parse_args()
    return Options(found.quick, found.json, found)
