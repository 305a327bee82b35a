"""``penstock demo``: real text through a real Spark job that is killed meanwhile, and a word count.

feeder    thread: copies source text into growing log files
job       process: the streaming program, to be read as an example of one
driver    starts, hears, stops and kills that process
runner    feeds, kills the driver and starts it again, drains, stops
progress  what the drivers said, summed up
word_counts, outcome
counts the words again, without Spark and penstock, compares, and shows the result
"""
