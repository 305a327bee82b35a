"""Graph checkpoints: the program's graph, kept so that a restart needs none of its code to run."""
