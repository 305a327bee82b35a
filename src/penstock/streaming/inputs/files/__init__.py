"""Inputs that take the new files of directories: which are new, and how they are read."""

from penstock.streaming.inputs.files.file_stream import FileInputDStream
from penstock.streaming.inputs.files.reading import BinaryRecords, TextLines

__all__ = ["BinaryRecords", "FileInputDStream", "TextLines"]
