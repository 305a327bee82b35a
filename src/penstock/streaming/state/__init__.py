"""State of keys across batches: mapWithState, updateStateByKey, windows with an inverse."""
