"""What a driver does on Spark for both front ends: above all, it keeps receivers running.

tracker  the receivers of one program or session: starts, limits and stops them
runner   one of them, submitted again when its task ends
feed     a stream, and the receivers that write it; how a run takes them over
spark    executors, task slots, jobs, and Hadoop's default file system
"""
