"""How much a receiver may hold in the journal: bytes of blocks, records that are not committed."""
