"""What programs do with streams: DStream, its operations, windows and outputs."""
