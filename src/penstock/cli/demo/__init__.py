"""``penstock demo``: real text through a real Spark job that is killed meanwhile, and a word count.

    feeder    process: copies source text into growing log files
    job       process: the streaming program, to be read as an example of one
    runner    starts both, kills the job and restarts it, drains, stops
    word_counts
              counts the words again, without Spark and penstock, and compares

``messages`` is what the processes say, ``progress`` and ``kill_plan`` are what the runner knows and
decides, ``child`` and ``workspace`` hold its processes and files, ``view`` and ``outcome`` show it,
``command`` is the command line. Nothing is imported here: feeder and job shall start fast.
"""
