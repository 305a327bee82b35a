"""What every test stands on: the workers' environment, one Spark, and nothing left behind."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from penstock.kafka.idle import KEPT_S
from tests.interpreter import interpreters
from tests.jvm import OPTIMIZED, java_options, stop_jvm, use_archive
from tests.processes import mark_this_run, open_files, processes_left
from tests.sharing import share
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark import SparkContext

    from tests.kafka.broker import Broker

pytest_plugins = ["tests.report"]
pytest.register_assert_rewrite("tests.storage.file_manager_suite")

ROOT = Path(__file__).parent.parent

# Before any JVM starts: workers run this interpreter, see the sources and the tests' own modules
# (functions of modules pickle by name), and Spark binds to loopback only.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# Temporary files go with the process, also those of JVMs and programs, which leave some when they
# are killed; pytest's own stay in the system's folder, to be read. Workers inherit the environment.
_SYSTEMS = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
get_temp_dir()  # of multiprocessing, which removes it itself, and later
_FILES = Path(tempfile.mkdtemp(prefix="penstock-tests-", dir=_SYSTEMS))
_FILES.chmod(0o711)  # PostgreSQL's server is another user
_JVM_FILES, tempfile.tempdir = str(_FILES / "programs"), str(_FILES / "tests")
Path(_JVM_FILES).mkdir(0o700)
Path(tempfile.tempdir).mkdir(0o711)
os.environ["TMPDIR"] = _JVM_FILES


@atexit.register
def _remove_temporary_files() -> None:
    """Name what tests left behind, and remove all."""
    if left := sorted(os.listdir(_FILES / "tests")):
        print(f"The tests left temporary files: {', '.join(left)}", file=sys.stderr)
    shutil.rmtree(_FILES, ignore_errors=True)


os.environ["JAVA_TOOL_OPTIONS"] = java_options(_JVM_FILES)
os.environ["SPARK_LOCAL_DIRS"] = _JVM_FILES
mark_this_run()
# Scripts start what runs beside them (`make test &`) with SIGINT ignored, and so would be all that
# tests start and end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# What an example takes says more of the machine than of the code. `make test` tries the same
# examples in each run; `make storm` tries others (--hypothesis-profile=storm).
settings.register_profile(
    "storm", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("tests", settings.get_profile("storm"), derandomize=True)
settings.load_profile("tests")


DURABILITY = (
    "*/faults/*",
    "*kill*.py",
    "*/checkpoint/test_crash_states.py",
    "*/checkpoint/test_model.py",
    "*/checkpoint/test_two_drivers.py",
    "*/hdfs/test_program.py",
    "*/hdfs/test_storage.py",
    "*/journal/test_model.py",
    "*/journal/test_power_cut.py",
    "*/journal/test_planted_bugs.py",
    "*/journal/test_registration_races.py",
    "*/kafka/test_cut_off.py",
    "*/kafka/test_data_loss.py",
    "*/kafka/test_sink*.py",
    "*/receivers/test_tail_steps.py",
    "*/storage/test_local_crash.py",
    "*/storage/test_local_processes.py",
    "*/streaming/recovery/*",
    "*/streaming/test_own_inputs.py",
    "*/streaming/test_recovery_sequence.py",
    "*/streaming/test_state_recovery.py",
    "*/structured/test_exactly_once_contract.py",
    "*/structured/test_query_storm.py",
    "*/structured/test_sinks.py",
    "*/structured/test_tables.py",
    "*/test_examples.py",
    "*/test_exactly_once.py",
    "*/cli/test_demo.py",
)
"""The files whose tests look for lost, doubled or corrupted records: ``scripts/gate.py`` never runs
one of them a second time."""

LEAVING = (
    "*/faults/test_state_kills.py",
    "*/kafka/test_topic_ids.py",
    "*/receivers/test_mqtt_deliveries.py",
    "*/receivers/test_mqtt_packets.py",
)
"""The files whose tests are of parts that will be removed or written again: ``make storm`` alone
runs them."""


def repeating_tests() -> list[str]:
    """Return how the ids of tests begin that ``make storm`` alone runs."""
    lines = (ROOT / "tests" / "storm.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.hookimpl(wrapper=True)  # before pytest-xdist, which notes what is to stay together
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    repeats = tuple(repeating_tests())
    for item in items:
        if any(fnmatch(str(item.path), pattern) for pattern in DURABILITY):
            item.add_marker("durability")
        if item.nodeid.startswith(repeats) or any(
            fnmatch(str(item.path), pattern) for pattern in LEAVING
        ):
            item.add_marker("storm")
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist
        share(items)
    return (yield)


_begun: dict[str, str] = {}
"""The processes that this run started, each with the module in which it did."""
_crowded: list[str] = []
"""The modules that left too many files open."""


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """Fail the run when a process that it started outlives it, or too many files were open."""
    yield
    left = [
        f"{each} (started in {_begun.get(each, 'no module')})"
        for each in processes_left(patience_s=10)
    ]
    assert not left, "the tests left processes behind:\n" + "\n".join(left)
    assert not _crowded, "the tests left files open:\n" + "\n".join(_crowded)


@pytest.fixture(autouse=True, scope="module")
def begun_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Note who started the processes that are alive after a module."""
    yield
    for each in processes_left(patience_s=0):
        _begun.setdefault(each, request.node.nodeid)


@pytest.fixture(autouse=True, scope="module")
def few_open_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """Note where open files become too many: with 1,024, every select() of the process fails."""
    before = open_files()
    yield
    if open_files().total() >= 400:
        gc.collect()  # in so large a process it comes by itself after thousands of tests
    if open_files().total() >= 700:  # clients of Kafka that wait for a next task end by themselves
        eventually(lambda: open_files().total() < 700, KEPT_S + 10)
    now = open_files()
    if before.total() < 700 <= now.total():
        counts = f"{now.total()}, {before.total()} before: {dict(now - before)}"
        _crowded.append(f"{request.node.nodeid}, or one before it: {counts}")


@pytest.fixture(autouse=True, scope="module")
def no_program_left_by_file() -> Iterator[None]:
    """Stop what a fixture of a file left running, when it failed."""
    yield
    _stop_programs()


@pytest.fixture(autouse=True)
def no_program_left() -> Iterator[None]:
    """Stop what a test left running, when it failed: the next one starts its own."""
    yield
    _stop_programs()


def _stop_programs() -> None:
    for name in ("penstock.streaming", "pyspark.streaming"):
        if (module := sys.modules.get(name)) is not None:
            active = module.StreamingContext.getActive()
            if active is not None:
                active.stop(stopSparkContext=False)


@pytest.fixture(scope="session", autouse=True)
def fast_starts(request: pytest.FixtureRequest, no_process_left: None) -> Iterator[None]:
    """Make JVMs and their Pythons start fast, before the first of the tests that start some."""
    if not any(item.get_closest_marker("spark") for item in request.session.items):
        yield
        return
    use_archive(request.config.rootpath / ".pytest_cache" / "spark-classes")
    with interpreters(Path(_JVM_FILES)):
        yield


@pytest.fixture(scope="session")
def sc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkContext]:
    """One quiet local Spark for all tests that need one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # It lives for the whole run, unlike those that tests start (``tests.jvm``).
        "spark.driver.extraJavaOptions": f"{OPTIMIZED} -Dderby.system.home={folder}",
        "spark.default.parallelism": "2",  # the other two slots are for receivers
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.streaming.blockInterval": "20ms",  # what tests send is durable sooner
        "spark.streaming.gracefulStopTimeout": "2min",  # 10 batches may be short on a busy machine
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setMaster("local[4]").setAppName("penstock tests").setAll(settings.items())
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    # Before tests change settings of the context, which a session that starts then would keep.
    SparkSession.builder.getOrCreate()
    yield context
    context.stop()
    stop_jvm()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of a worker share; each makes topics of its own."""
    from tests.kafka.broker import Broker

    with Broker(tmp_path_factory.mktemp("kafka") / "broker").running() as broker:
        yield broker


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """The URL of a bucket on an S3 server in this process, reached through the real driver."""
    boto3 = importlib.import_module("boto3")
    moto = importlib.import_module("moto.server")
    writes = importlib.import_module("moto.s3.responses").S3Response
    one_at_a_time = threading.Lock()

    def atomic(write: Callable[..., Any]) -> Callable[..., Any]:
        """moto sees that a name is free and takes it in two steps; S3 does both in one."""

        @functools.wraps(write)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with one_at_a_time:
                return write(*args, **kwargs)

        return locked

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name in ("_key_response_put", "_key_response_post"):
            patch.setattr(writes, name, atomic(getattr(writes, name)))
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield "s3://bucket"
    server.stop()
