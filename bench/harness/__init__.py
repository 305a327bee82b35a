"""What the benchmarks share: options, runs in turns, fresh processes, the table and the JSON line."""

from harness.lines import LINE_BYTES, log_lines
from harness.options import Options, parse_options
from harness.processes import fresh_process, text_server
from harness.report import Metric, report
from harness.spark import spark_context
from harness.turns import Sides, in_turns

__all__ = [
    "LINE_BYTES",
    "Metric",
    "Options",
    "Sides",
    "fresh_process",
    "in_turns",
    "log_lines",
    "parse_options",
    "report",
    "spark_context",
    "text_server",
]
