"""``penstock ingest``: receivers as a process of their own, without Spark."""

from penstock.cli.ingest.commands import app

__all__ = ["app"]
