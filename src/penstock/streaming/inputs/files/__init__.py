"""Inputs that take the new files of directories: which are new, and how they are read."""
