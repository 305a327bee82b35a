"""The consumers of blocks, and the deletion of blocks that no consumer needs."""
