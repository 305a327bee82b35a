"""Inputs, which are read by offsets, and the methods that create them."""
