"""The same windows over files on pyspark.streaming and on penstock, with downtimes between runs.

pyspark makes a batch for each tick that passed, penstock for those that tell something new. So each
batch of penstock's must be pyspark's, and of the others each must be empty or say nothing new.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.streaming import StreamingContext as TheirContext

from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from tests.streaming.engines import keep, seen
from tests.streaming.settings import spark_settings
from tests.streaming.test_same_files import Script, put
from tests.waiting import eventually

pytestmark = pytest.mark.spark

RUNS: list[tuple[Script, int, Script]] = [
    # What comes before each batch, seconds of downtime, what comes meanwhile.
    (
        [[("a", b"a", 0.5)], [("b", b"b\na", 1.5)], [("c", b"c", 2.9)]],
        5,
        [("d", b"d\nb", 4.5), ("e", b"e", 6.2), ("late", b"f", 5), ("f", b"g\na", 8)],
    ),
    ([[("h", b"h", 8.9)]], 6, []),
    ([[("i", b"i", 15.5)]], 0, []),
]


def total(values: Any, state: Any) -> Any:
    return sum(values) + (state or 0)


def ones(lines: Any) -> Any:
    return lines.map(lambda line: (line, 1))


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda lines: lines.window(3, 3),
    "sliding": lambda lines: lines.window(6, 2).map(str),
    "window of windows": lambda lines: lines.window(2, 2).window(4, 4),
    "with an inverse": lambda lines: ones(lines).reduceByKeyAndWindow(
        operator.add, operator.sub, 5, 1, 1, lambda pair: pair[1] > 0
    ),
    "state of windows": lambda lines: ones(lines.window(2, 2)).updateStateByKey(total, 1),
    "batches": lambda lines: lines,  # the last one to run
}

Seen = dict[str, dict[float, Any]]


def define(ssc: Any, folder: Path) -> None:
    lines = ssc.textFileStream(str(folder))
    for name, program in PROGRAMS.items():
        keep(name, program(lines))


SETTINGS = {
    "spark.streaming.fileStream.minRememberDuration": "5s",
    "spark.streaming.clock": "org.apache.spark.util.ManualClock",
}


def last_time() -> float:
    return max(seen.get("batches", {}), default=0.0)


def wait_theirs(ssc: TheirContext, wanted: float) -> None:
    def ended() -> bool:
        ssc.awaitTerminationOrTimeout(0)  # raises what a job raised
        return last_time() == wanted

    assert eventually(ended), f"the batch of {last_time()} s is the last, not that of {wanted} s"


def wrote_all(ssc: TheirContext, wanted: float) -> bool:
    """Return whether the batch's last checkpoint is written; one batch behind, all later differ.

    The name of its file does not tell: what the batch before writes when its jobs have ended may
    come later, and goes to the newest name.
    """
    scheduler = ssc._jssc.ssc().scheduler()
    generator = private(scheduler, "jobGenerator")
    processed = private(generator, "lastProcessedBatch")
    return processed is not None and float(processed.milliseconds()) == wanted * 1000


def private(owner: Any, name: str) -> Any:
    field = owner.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)


def run_ours(sc: SparkContext, root: Path) -> None:
    """Recover once from the graph checkpoint, and once from the program."""
    clock = ManualClock()
    place = str(root / "checkpoint")
    for number, (script, downtime_s, meanwhile) in enumerate(RUNS):
        if number == 1:
            ssc = StreamingContext(place, clock=clock)
        else:
            ssc = StreamingContext(sc, 1, clock=clock)
            ssc.checkpoint(place)
            define(ssc, root / "in")
        with ExitStack() as stack:
            stack.callback(ssc.stop, stopSparkContext=False)
            ssc.start()
            for files in script:
                put(root / "in", files)
                clock.advance(1000)
                wanted = clock.time_ms() / 1000
                assert eventually(lambda wanted=wanted: last_time() == wanted)  # type: ignore[misc]
        clock.advance(downtime_s * 1000)
        put(root / "in", meanwhile)


def run_theirs(sc: SparkContext, root: Path) -> None:
    place = root / "checkpoint"
    downtime_s = 0
    for number, (script, next_downtime_s, meanwhile) in enumerate(RUNS):
        with ExitStack() as stack:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", FutureWarning
                )  # it says that DStreams are deprecated
                if number:
                    jump = {"spark.streaming.manualClock.jump": str(downtime_s * 1000)}
                    stack.enter_context(spark_settings(sc, jump))
                    ssc = TheirContext.getOrCreate(str(place), lambda: None)
                else:
                    ssc = TheirContext(sc, 1)
                    ssc.checkpoint(str(place))
                    define(ssc, root / "in")
            wanted = last_time() + downtime_s
            stack.callback(ssc.stop, stopSparkContext=False)
            ssc.start()
            for files in script:
                put(root / "in", files)
                ssc._jssc.ssc().scheduler().clock().advance(1000)
                wanted += 1
                wait_theirs(ssc, wanted)
            assert eventually(lambda: wrote_all(ssc, wanted))  # noqa: B023
        downtime_s = next_downtime_s
        put(root / "in", meanwhile)


@pytest.fixture(scope="module")
def results(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """What the outputs of each engine's runs saw."""
    found: dict[str, Seen] = {}
    runs = {"ours": run_ours, "theirs": run_theirs}
    for name, run in runs.items():
        root = tmp_path_factory.mktemp(name)
        (root / "in").mkdir()
        seen.clear()
        with spark_settings(sc, SETTINGS):
            run(sc, root)
        found[name] = {program: dict(times) for program, times in seen.items()}
    return found


@pytest.mark.storm
@pytest.mark.parametrize("program", list(PROGRAMS))
def test_same_windows(results: dict[str, Seen], program: str) -> None:
    mine, other = results["ours"][program], results["theirs"][program]
    assert {time: other.get(time) for time in mine} == mine
    before: Any = []
    for time, records in sorted(other.items()):
        if time not in mine:
            assert records in ([], before), f"at {time} s"
        before = records
