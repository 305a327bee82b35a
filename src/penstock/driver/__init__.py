"""What a driver does on Spark for both front ends: above all, it keeps receivers running.

tracker          the receivers of one program or session: starts, limits and stops them
takeover         how a run takes them over from earlier runs
runner           one of them, submitted again when its task ends
placement        on which executor
slots            whether tasks of batches have a slot beside them                  pure
feed             a stream, and the receivers that write it; their settings
watch            what is told of them
shared_location  whether executors see the driver's files
executors, job_group
"""
