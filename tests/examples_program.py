"""Runs example programs one after the other, in a JVM that they share.

    python examples_program.py FOLDER

All run in FOLDER. A line of standard input is "stop" for the one that runs, "leave" to stop it and
leave its SparkContext to the next one, or JSON: where to print to, the program and its arguments.
Prints "ended" after each.
"""

from __future__ import annotations

import json
import os
import queue
import runpy
import sys
import threading
from contextlib import redirect_stdout

from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext
from tests.driver_program import SETTINGS, say

EXAMPLES = {
    **SETTINGS,
    "spark.default.parallelism": "2",
    "spark.master": "local[4]",
    "spark.sql.shuffle.partitions": "1",
}


def read(examples: queue.Queue[str]) -> None:
    for line in sys.stdin:
        if line not in ("stop\n", "leave\n"):
            examples.put(line)
        elif (active := StreamingContext.getActive()) is not None:
            active.stop(stopSparkContext=line == "stop\n")
        else:
            for query in SparkSession.builder.getOrCreate().streams.active:
                query.stop()


def main(folder: str) -> None:
    os.chdir(folder)
    conf = " ".join(f"--conf {name}={value}" for name, value in EXAMPLES.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{conf} pyspark-shell"
    examples: queue.Queue[str] = queue.Queue()
    threading.Thread(target=read, args=(examples,), daemon=True).start()
    while True:
        output, *sys.argv = json.loads(examples.get())
        with open(output, "w", buffering=1) as file, redirect_stdout(file):
            runpy.run_path(sys.argv[0], run_name="__main__")
        say("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
