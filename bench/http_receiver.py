"""Durable HTTP POSTs: the receiver against the same server without a journal, loaded by wrk.

Both serve with uvicorn (uvloop, httptools), one process each, wrk on the same cores. The peer is a
Starlette application that reads the body and answers the same JSON; it keeps nothing. Ours answers
after the publish (Parquet block, fsync, link, fsync of the folder). Requests of one record carry
100 bytes of text.

Medians and the 99th percentile are against their limits (10 ms, 100 ms), not against the peer.
Large bodies are NDJSON of 4 MB (lines of 150 bytes); their peer is what one core parses of the same
body without server and journal, in a process that does nothing else.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from harness import (
    EVENT_COLUMNS,
    Load,
    Metric,
    event_lines,
    have_wrk,
    http_server,
    in_turns,
    parse_options,
    report,
    wrk,
)

from penstock.receivers.http.bodies import BodyParser

_RECORD = b"x" * 100
_LOW_CONNECTIONS, _LOW_PAUSE_MS = 4, 40
_MEDIAN_LIMIT_MS = 10.0
_P99_LIMIT_MS = 100.0
_HALF_CONNECTIONS = 64
_MB = 1e6


def main() -> None:
    """Run all loads."""
    options = parse_options(__doc__)
    if not have_wrk():
        sys.exit("bench/http_receiver.py needs wrk: apt-get install wrk")
    seconds, rounds = (2.0, 1) if options.quick else (8.0, 3)
    metrics = [
        *_single_records(seconds, rounds),
        *_latencies(seconds, rounds),
        *_large_bodies(seconds, rounds),
    ]
    report("http", metrics, as_json=options.json)


def _single_records(seconds: float, rounds: int) -> list[Metric]:
    metrics = []
    for connections, target in ((512, 0.7), (64, 0.35)):
        sides = {
            f"{kind} {connections}": partial(_requests_per_s, kind, connections, seconds)
            for kind in ("ours", "bare")
        }
        rate = in_turns(sides, rounds, "requests/s")
        ours, peer = (rate[name] for name in sides)
        name = f"durable requests, {connections} connections"
        metrics.append(Metric(name, "requests/s", ours, peer, target))
    return metrics


def _latencies(seconds: float, rounds: int) -> list[Metric]:
    sides = {
        "median at low load": partial(_median_at_low_load, seconds),
        "p99 at half load": partial(_p99_at_half_load, seconds),
    }
    found = in_turns(sides, rounds, "ms")
    limits = (_MEDIAN_LIMIT_MS, _P99_LIMIT_MS)
    return [
        Metric(f"{name}, limit as peer", "ms", found[name], limit, 1.0, less_is_better=True)
        for name, limit in zip(sides, limits, strict=True)
    ]


def _large_bodies(seconds: float, rounds: int) -> list[Metric]:
    body = event_lines(27_000)
    schemas = {"ours": ("text of lines", "string"), "columns": ("columns", EVENT_COLUMNS)}
    metrics = []
    for kind, (name, schema) in schemas.items():
        sides = {
            f"NDJSON, {name}": partial(_megabytes_per_s, kind, body, seconds),
            f"parse alone, {name}": partial(_parsed_megabytes_per_s, schema, body, seconds / 2),
        }
        rate = in_turns(sides, rounds, "MB/s")
        ours, parsed = (rate[side] for side in sides)
        metrics.append(Metric(f"NDJSON of 4 MB, {name}", "MB/s", ours, parsed))
        metrics.append(Metric("the same, 300 MB/s as peer", "MB/s", ours, 300.0, 1.0))
    return metrics


def _load(kind: str, connections: int, seconds: float, pause_ms: float = 0) -> Load:
    with http_server(kind) as port:
        press = partial(wrk, port, _RECORD, "text/plain", connections=connections)
        press(seconds=1.0)  # warm up
        return press(seconds=seconds, pause_ms=pause_ms)


def _requests_per_s(kind: str, connections: int, seconds: float) -> float:
    return _load(kind, connections, seconds).requests_per_s


def _median_at_low_load(seconds: float) -> float:
    return _load("ours", _LOW_CONNECTIONS, seconds, _LOW_PAUSE_MS).p50_ms


def _p99_at_half_load(seconds: float) -> float:
    full = _requests_per_s("ours", _HALF_CONNECTIONS, seconds)
    # More connections than at full load, each of which waits long enough to halve the rate.
    connections = 4 * _HALF_CONNECTIONS
    half = _load("ours", connections, seconds, pause_ms=1000 * connections / (full / 2))
    print(f"    {half.requests_per_s:,.0f} requests/s, full load {full:,.0f}", flush=True)
    return half.p99_ms


def _megabytes_per_s(kind: str, body: bytes, seconds: float) -> float:
    with http_server(kind) as port:
        load = wrk(port, body, "application/x-ndjson", connections=4, seconds=seconds)
    return load.requests_per_s * len(body) / _MB


def _parsed_megabytes_per_s(schema: object, body: bytes, seconds: float) -> float:
    parser = BodyParser(schema)
    begin_s, times = time.monotonic(), 0
    while (spent_s := time.monotonic() - begin_s) < seconds:
        parser.parse("ndjson", body)
        times += 1
    return times * len(body) / _MB / spent_s


if __name__ == "__main__":
    main()
