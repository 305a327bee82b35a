"""Recovery besides the logs: the graph checkpoint, and the match with a changed program."""
