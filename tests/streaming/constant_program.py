"""The program that tests kill: a ConstantInputDStream with checkpoints, made by getOrCreate.

    python constant_program.py CHECKPOINT

Says ``created`` or ``recovered``, and each batch by its number in this run.
"""

from __future__ import annotations

import sys
from itertools import count

from penstock.streaming import ConstantInputDStream, StreamingContext
from tests.driver_program import new_spark

numbers = count(1)
said = "recovered"


def tell(rdd) -> None:  # type: ignore[no-untyped-def]
    import __main__ as program  # its counter must not be pickled with the graph

    print("batch", next(program.numbers), rdd.collect(), flush=True)


def create() -> StreamingContext:
    global said
    said = "created"
    sc = new_spark()
    ssc = StreamingContext(sc, 0.1)
    ConstantInputDStream(ssc, sc.parallelize(range(10), 2)).checkpoint(0.5).foreachRDD(tell)
    return ssc


if __name__ == "__main__":
    ssc = StreamingContext.getOrCreate(sys.argv[1], create)
    print(said, flush=True)
    ssc.sparkContext.setLogLevel("OFF")
    ssc.start()
    ssc.awaitTermination()
