"""``penstock ingest``: receivers as a separate process, without Spark."""

from penstock.cli.ingest.commands import app

__all__ = ["app"]
