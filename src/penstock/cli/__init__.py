"""The ``penstock`` command: thin, over the same public calls that programs use."""
