"""The base of all streams and batches, below inputs, operations and state."""
