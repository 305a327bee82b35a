"""Each program of examples/ runs as it stands, on real input, and its output is checked."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from tests.batched.reading import read_topic
from tests.examples import Example, Examples, LineServer
from tests.free_port import free_port
from tests.ingest_process import ingest
from tests.kafka.broker import Broker as Kafka
from tests.receivers.mqtt_broker import Broker as Mosquitto
from tests.receivers.mqtt_broker import needs_mosquitto, publisher
from tests.structured.postgres import Server, needs_postgres
from tests.waiting import WAIT_S

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))

runs_spark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("our examples")]


def marked(*marks: pytest.MarkDecorator) -> Any:
    def mark(test: Any) -> Any:
        for each in (*runs_spark, *marks):
            test = each(test)
        return test

    return mark


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    with Examples(tmp_path_factory.mktemp("examples")) as examples:
        yield examples


def test_the_table_has_each_program_and_the_documentation_names_it() -> None:
    table = (EXAMPLES / "README.md").read_text()
    named = sorted(re.findall(r"^\| \[(\w+\.py)\]\(\1\)", table, re.MULTILINE))
    assert named == [path.name for path in PROGRAMS]
    pages = "".join(page.read_text() for page in EXAMPLES.parent.glob("docs/*.md"))
    assert [path.name for path in PROGRAMS if f"examples/{path.name}" not in pages] == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_says_how_to_try_it_and_hides_the_progress_bar(path: Path) -> None:
    text = path.read_text()
    (command,) = re.findall(rf"^    python examples/{path.name} .*$", doc(text), re.MULTILINE)[:1]
    assert command
    assert "docker " not in text
    if "SparkSession" in text:
        bar = text.index("showConsoleProgress")
        assert "# Spark's progress bar would break the lines" in text[:bar].splitlines()[-2]


def doc(text: str) -> str:
    return ast.get_docstring(ast.parse(text), clean=False) or ""


@marked()
def test_word_count(examples: Examples, tmp_path: Path) -> None:
    server = LineServer()
    server.text = "to be or\nnot to be\n"
    with running(examples, "word_count", "127.0.0.1", server.port, tmp_path) as example:
        example.wait_for("('to', 2)", "('be', 2)", "('or', 1)", "('not', 1)", "Time: ")
        server.send("to\n")
        example.wait_for("('to', 1)", "('to', 3)")
    server.close()


@marked()
def test_http_clicks(examples: Examples, tmp_path: Path) -> None:
    port = free_port()
    click = {"page": "/a", "user": "kim", "time": "2026-01-02T03:04:05.678Z"}
    with running(examples, "http_clicks", port, tmp_path) as example:
        answers = [post(example, port, click, key) for key in ("1", "1", "2")]
        assert answers[0] == answers[1]
        example.wait_until(partial(has_rows, tmp_path / "out", 2))
    when = pd.Timestamp("2026-01-02T03:04:05.678")  # Spark's files say in UTC
    assert parquet(tmp_path / "out") == [{**click, "time": when}] * 2


@marked(needs_mosquitto)
def test_mqtt_sensors(examples: Examples, tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    broker.start()
    args = ["127.0.0.1", broker.port, tmp_path / "checkpoint", 2]
    try:
        with running(examples, "mqtt_sensors", *args) as example:
            example.wait_until(partial(broker.has_logged, "Sending SUBACK to penstock-plant-r0"))
            with publisher(broker) as sensor:
                for temperature in ("95.5", "96", "20"):
                    sensor.publish([temperature], topic="plant/boiler/temperature")
            hot, well = "('boiler', 'is too hot: 95.5')", "('boiler', 'is well again: 20.0')"
            example.wait_for(hot, well, "('boiler', 'is silent')")
            assert example.printed.count("boiler") == 3
    finally:
        broker.kill()


@marked()
def test_log_files(examples: Examples, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("2026-01-02T03:04:05+00:00 GET /a 200\nnonsense\n")
    with running(examples, "log_files", tmp_path / "*.log", tmp_path) as example:
        example.wait_until(partial(has_rows, tmp_path / "out", 1))
        with log.open("a") as more:
            more.write("2026-01-02T03:04:06+00:00 POST /b 404\n")
        example.wait_until(partial(has_rows, tmp_path / "out", 2))
    assert [(str(row.pop("time")), *row.values()) for row in parquet(tmp_path / "out")] == [
        ("2026-01-02 03:04:05", "GET", "/a", 200),
        ("2026-01-02 03:04:06", "POST", "/b", 404),
    ]


@marked()
def test_kafka_exactly_once(examples: Examples, broker: Kafka, tmp_path: Path) -> None:
    source, target = broker.create_topic("all-orders"), broker.create_topic("large-orders")
    orders = [{"id": n, "amount": amount} for n, amount in enumerate([250, 7, 100])]
    broker.produce(source, [json.dumps(order).encode() for order in orders])

    def written() -> list[object]:
        return [json.loads(value or b"") for value in read_topic(broker, target)]

    args = [broker.address, source, target, tmp_path]
    with running(examples, "kafka_exactly_once", *args) as example:
        example.wait_until(lambda: len(written()) == 2)
    assert written() == [orders[0], orders[2]]


@marked()
def test_windows_joins(examples: Examples, tmp_path: Path) -> None:
    lines = ["view kim /shoes", "view kim /shoes", "order kim 59.90", "order ann 5", ""]
    (tmp_path / "events.log").write_text("\n".join(lines))

    def windows() -> list[str]:
        folders = [done.parent for done in tmp_path.glob("out/revenue-*/_SUCCESS")]
        texts = ["".join(p.read_text() for p in folder.glob("part-*")) for folder in folders]
        return list(filter(None, texts))

    args = [tmp_path / "events.log", tmp_path, 2, 1]
    with running(examples, "windows_joins", *args) as example:
        example.wait_until(lambda: len(windows()) == 2)
    assert windows() == ["('/shoes', 59.9)\n"] * 2


@marked()
def test_structured_journal(examples: Examples, tmp_path: Path) -> None:
    from penstock.structured.sinks import published_files

    def counts() -> list[dict[str, Any]]:
        return records(published_files(tmp_path / "out")) if (tmp_path / "out").exists() else []

    port = free_port()
    journal = ["--journal", str(tmp_path / "journal"), "--stream", "clicks"]
    columns = ["--schema", "page string, time timestamp[us, UTC]"]
    with ingest(tmp_path, "ingest", "http", "--port", str(port), *journal, *columns) as endpoint:
        endpoint.wait_receiving()
        with running(examples, "structured_journal", tmp_path) as example:
            for time in ("00:00", "00:01", "01:00", "02:30"):
                post(example, port, {"page": "/a", "time": f"1970-01-01T00:{time}Z"})
            example.wait_until(lambda: len(counts()) == 2)
    assert sorted((str(row["minute"]), row["count"]) for row in counts()) == [
        ("1970-01-01 00:00:00", 2),
        ("1970-01-01 00:01:00", 1),
    ]


@marked()
def test_custom_receiver(examples: Examples, tmp_path: Path) -> None:
    database = tmp_path / "shop.db"

    def append(*bodies: str) -> None:
        with closing(sqlite3.connect(database)) as db, db:
            db.execute("create table if not exists outbox (id integer primary key, body text)")
            db.executemany("insert into outbox (body) values (?)", [[body] for body in bodies])

    append("hello", "world")
    for wanted in (["hello", "world"], ["hello", "world", "again"]):  # the second one restarted
        with running(examples, "custom_receiver", database, tmp_path) as example:
            example.wait_until(partial(has_rows, tmp_path / "out", len(wanted)))
        assert [row["value"] for row in parquet(tmp_path / "out")] == wanted
        append("again")


@marked()
def test_dead_letters(examples: Examples, tmp_path: Path) -> None:
    (tmp_path / "events.log").write_text('{"page": "/a"}\n/b\n')
    checkpoint = tmp_path / "checkpoint"
    args = [tmp_path / "events.log", tmp_path]

    def pages() -> list[str]:
        files = tmp_path.glob("out/pages-*/part-*")
        return sorted("".join(file.read_text() for file in files).splitlines())

    def has_letter() -> bool:
        dead = checkpoint / "journal" / "events-dead"
        return any(dead.glob("*.parquet"))

    with running(examples, "dead_letters", *args) as example:
        example.wait_until(lambda: pages() == ["('/a', 1)"] and has_letter())
    replayed = CliRunner().invoke(app, ["journal", "replay", str(checkpoint), "events-dead"])
    assert "1 dead letters of events-dead were fed into stream events" in replayed.output
    with running(examples, "dead_letters", *args, "plain") as example:
        example.wait_until(lambda: pages() == ["('/a', 1)", "('/b', 1)"])


@marked(needs_postgres)
def test_postgres_sink(examples: Examples, tmp_path: Path) -> None:
    import psycopg

    server, port = Server(), free_port()
    try:
        server.start()
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("create table orders (id bigint, item text, amount float8)")

            def rows() -> list[object]:
                return db.execute("select id, item, amount from orders").fetchall()

            with running(examples, "postgres_sink", port, server.url, tmp_path) as example:
                for key in ("1", "1"):
                    post(example, port, {"id": 1, "item": "shoes", "amount": 59.9}, key)
                example.wait_until(lambda: len(rows()) == 1)
            assert rows() == [(1, "shoes", 59.9)]
    finally:
        server.stop()


def running(examples: Examples, name: str, *args: object) -> AbstractContextManager[Example]:
    return examples.running(EXAMPLES / f"{name}.py", *map(str, args))


def post(example: Example, port: int, record: dict[str, Any], key: str | None = None) -> Any:
    """Post a record once the endpoint answers; return what it answered."""
    url = f"http://127.0.0.1:{port}/"
    example.wait_until(lambda: is_up(url))
    headers = {"Content-Type": "application/x-ndjson"} | ({"Idempotency-Key": key} if key else {})
    answer = httpx.post(url, content=json.dumps(record), headers=headers, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}healthz", timeout=WAIT_S).status_code == 200
    except httpx.TransportError:
        return False


def has_rows(folder: Path, count: int) -> bool:
    return len(parquet(folder)) == count


def parquet(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of the whole batches, in the order of their ids."""
    done = sorted(folder.glob("batch=*/_SUCCESS"), key=lambda path: int(path.parent.name[6:]))
    return records([file for path in done for file in sorted(path.parent.glob("*.parquet"))])


def records(files: list[Any]) -> list[dict[str, Any]]:
    return [row for file in files for row in pd.read_parquet(file).to_dict("records")]
