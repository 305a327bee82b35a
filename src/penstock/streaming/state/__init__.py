"""State of keys over batches: mapWithState, updateStateByKey, windows with an inverse."""
