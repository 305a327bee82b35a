"""The driver's side of receivers: where they run, and what becomes of them."""
