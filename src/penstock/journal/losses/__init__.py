"""Records that cannot be read any more: the ledger of those that were given up, and giving up."""
