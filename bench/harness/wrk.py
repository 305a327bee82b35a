"""Load by wrk, which takes a fraction of the processor time that a client in Python would."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Load", "have_wrk", "wrk"]

_SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "{content_type}"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
{pause}
function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format(
    '{{"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "errors": %d}}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


@dataclass(frozen=True)
class Load:
    """What a run of wrk found."""

    requests: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float


def have_wrk() -> bool:
    """Whether wrk is installed."""
    return shutil.which("wrk") is not None


def wrk(
    port: int,
    body: bytes,
    content_type: str,
    *,
    connections: int,
    seconds: float,
    pause_ms: float = 0,
) -> Load:
    """POST a body to ``/`` again and again, from some connections.

    ``pause_ms`` is how long each connection waits after an answer.

    Raises:
        RuntimeError: wrk failed, or a request did.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        content, script = Path(folder, "body"), Path(folder, "post.lua")
        content.write_bytes(body)
        # Around the pause, so that the connections do not beat in step.
        pause = f"function delay() return math.random(0, {round(2 * pause_ms)}) end"
        script.write_text(
            _SCRIPT.format(content_type=content_type, body=content, pause=pause if pause_ms else "")
        )
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "20s"]
        command += ["-s", str(script), f"http://127.0.0.1:{port}/"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise RuntimeError(f"wrk failed:\n{done.stdout}\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["errors"]:
        raise RuntimeError(f"requests failed: {found}")
    requests = found["requests"]
    return Load(requests, requests / found["seconds"], found["p50_ms"], found["p99_ms"])
