"""The engine: plans a batch each interval, runs its jobs on Spark, commits it, looks after receivers."""
