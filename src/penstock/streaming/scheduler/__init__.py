"""The engine: plans batches, runs their jobs on Spark, commits them, and looks after receivers."""
