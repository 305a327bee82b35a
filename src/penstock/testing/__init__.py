"""Helpers for tests of programs that use penstock; shipped, for users too."""

from penstock.testing.recording_host import RecordingHost

__all__ = ["RecordingHost"]
