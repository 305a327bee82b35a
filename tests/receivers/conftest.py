from __future__ import annotations

from penstock.testing import RecordingHost
from tests.waiting import WAIT_S

RecordingHost.wait_s = WAIT_S
