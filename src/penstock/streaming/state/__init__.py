"""State of keys across batches: updateStateByKey, windows with an inverse."""
