"""DStream, its operations, windows and outputs."""
