"""Changes of a checkpoint location: each one a plan of plain values, applied at once or not."""
