"""Where records come from: inputs that are read by offsets, and what makes them."""
