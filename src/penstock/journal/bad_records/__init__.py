"""Records that a parser refuses: what tasks do with them, dead letters, and their replay."""
