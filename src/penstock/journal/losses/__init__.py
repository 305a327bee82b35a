"""Records that cannot be read any more: the loss log of skipped records, and skipping."""
