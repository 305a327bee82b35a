"""``format("penstock-kafka")``: topics, with the options and columns of Spark's Kafka source.

options   what is given, parsed                    pure
jaas      Java's form of users and passwords       pure
topics    which partitions are read
bounds    where a read begins and ends
planner   plans a query's batches
source    the data source
"""
