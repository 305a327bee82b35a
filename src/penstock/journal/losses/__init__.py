"""Records that cannot be read any more: the loss log of those that were given up, and giving up."""
