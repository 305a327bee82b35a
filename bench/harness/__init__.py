"""What the benchmarks share: options, runs in turns, fresh processes, the table and its JSON."""

from harness.durable_file import create_durably
from harness.lines import EVENT_COLUMNS, LINE_BYTES, event_lines, log_lines
from harness.options import Options, parse_options
from harness.processes import LoadServer, fresh_process, http_server, load_server, text_server
from harness.report import Metric, report
from harness.samples import Series, count_files, open_descriptors, resident_mb
from harness.spark import spark_context
from harness.turns import Sides, in_turns
from harness.wrk import Load, have_wrk, wrk

__all__ = [
    "EVENT_COLUMNS",
    "LINE_BYTES",
    "Load",
    "LoadServer",
    "Metric",
    "Options",
    "Series",
    "Sides",
    "count_files",
    "create_durably",
    "event_lines",
    "fresh_process",
    "have_wrk",
    "http_server",
    "in_turns",
    "load_server",
    "log_lines",
    "open_descriptors",
    "parse_options",
    "report",
    "resident_mb",
    "spark_context",
    "text_server",
    "wrk",
]
