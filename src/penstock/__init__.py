"""Durable push ingestion, back pressure and recoverable checkpoints for PySpark jobs."""

__all__ = ["__version__"]

__version__ = "0.1.0"
