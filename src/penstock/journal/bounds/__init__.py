"""How much a stream may hold, over all of its writers: bytes of blocks, records not yet read."""
