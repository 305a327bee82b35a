"""Plans batches, runs their jobs on Spark, commits them."""
