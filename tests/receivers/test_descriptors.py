"""The limit of file descriptors, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource
from penstock.receivers.descriptors import raise_descriptor_limit, spare_descriptors

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
print(spare_descriptors())
raise_descriptor_limit()
print(spare_descriptors(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_is_raised_and_some_are_left_for_others() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split("\n")[:2] == ["72", "172 (300, 300)"]
