"""Durable push ingestion, back pressure and recoverable checkpoints for PySpark jobs."""

from penstock.logs import add_last_resort

__all__ = ["__version__"]

__version__ = "0.1.0"

add_last_resort()
