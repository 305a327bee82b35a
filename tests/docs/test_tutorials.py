"""The tutorials work as they are written, but for paths, ports and waiting."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, SinkError
from penstock.streaming import OutputBatch
from tests.docs.pages import ROOT, blocks, changed, program, shell
from tests.free_port import free_port
from tests.streaming.test_spark_examples import LineServer

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.storm
def test_http_to_parquet_with_kills_and_a_damaged_block(tmp_path: Path) -> None:
    page, port = "tutorials/http-to-parquet.md", str(free_port())

    def here(text: str) -> str:
        return text.replace("/tmp/shop", str(tmp_path / "shop")).replace("8080", port)

    (clicks,) = blocks(page, "python")
    (tmp_path / "clicks.py").write_text(here(clicks))
    printed = shell([here(each) for each in blocks(page, "bash")], tmp_path)
    assert printed.count('{"writer":"ingest-00000000","start":0,"end":2}') == 2, printed
    assert '{"writer":"ingest-00000001","start":0,"end":1}' in printed
    assert "DAMAGED clicks/ingest-00000001 records [0, 1)" in printed
    assert "exit status 1" in printed
    assert "['/a', '/b', '/c']" in printed


class TestAProgramFrom2016:
    page = "tutorials/a-program-from-2016.md"

    @pytest.fixture
    def server(self) -> Iterator[LineServer]:
        server = LineServer()
        server.text = "to be or\nnot to be\n"
        yield server
        server.close()

    def test_with_another_import(
        self,
        sc: SparkContext,
        server: LineServer,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        code = blocks(self.page, "python")[0]
        for diff in blocks(self.page, "diff")[:2]:
            code = changed(code, diff)
        code = code.replace('"localhost", 9999', f'"127.0.0.1", {server.port}')
        printed: list[str] = []

        def is_printed() -> bool:
            printed.append(capsys.readouterr().out)
            return "('be', 2)" in "".join(printed)

        with program(code.replace("/tmp/words", str(tmp_path)), sc) as running:
            running.wait_for(is_printed)

    def test_the_result_counts_each_word_once_over_a_restart(
        self, sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(RDD, "toDF")  # the program has no session yet, unlike the tests' Spark
        code = blocks(self.page, "python")[-1].replace("/tmp/words", str(tmp_path))
        text = tmp_path / "input" / "a.txt"
        text.parent.mkdir()
        text.write_text("to be or\n")
        for total in (3, 6):
            with program(code, sc) as running:
                running.wait_for(lambda total=total: counted(tmp_path / "counts") == total)
            with text.open("a") as more:
                more.write("not to be\n")
        table = pd.read_parquet(tmp_path / "counts").groupby("word")["count"].sum()
        assert table.to_dict() == {"to": 2, "be": 2, "or": 1, "not": 1}


def counted(folder: Path) -> int:
    """Return the sum of all counts that are written whole."""
    done = [each.parent for each in folder.glob("batch=*/_SUCCESS")]
    return sum(int(pd.read_parquet(each)["count"].sum()) for each in done)


@pytest.mark.storm
def test_a_structured_query_with_back_pressure(
    sc: SparkContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, port = "tutorials/structured-query.md", str(free_port())

    def here(text: str) -> str:
        return text.replace("/tmp/plant", str(tmp_path / "plant")).replace("8080", port)

    receive, send, watch = (here(each) for each in blocks(page, "bash"))
    query, read = (here(each) for each in blocks(page, "python"))

    def is_written() -> bool:
        with suppress(PenstockError):  # nothing is written yet
            exec(read, {})
        return "10000" in capsys.readouterr().out

    shell([receive, send, "kill %1; wait"], tmp_path)  # the journal is there without a receiver
    with program(query, sc) as running:
        running.wait_for(is_written)
        printed = shell([watch], tmp_path)
    assert "rate/s" in printed, printed  # how it grew depends on the machine
    assert re.search(r"readings +to-parquet +0 ", printed), printed


def test_an_output_that_stores_a_token_writes_a_batch_once(
    sc: SparkContext, tmp_path: Path
) -> None:
    (code,) = (each for each in blocks("outputs.md", "python") if "sqlite3" in each)
    path = tmp_path / "orders.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE orders (item TEXT, price REAL)")
        (table,) = re.findall(
            r"`(CREATE TABLE batches .*?)`", (ROOT / "docs" / "outputs.md").read_text()
        )
        db.execute(table)
    names = {"orders": Mock()}
    exec(code.replace("/data/orders.db", str(path)), names)
    spark = SparkSession.builder.getOrCreate()
    batch = spark.createDataFrame([("tea", 3.5)], "item string, price double")
    for batch_id in (7, 7, 8):
        names["write"](batch, batch_id, OutputBatch("location", "orders", batch_id, plan="p"))
    with pytest.raises(RuntimeError, match="another batch is stored under the id"):
        names["write"](batch, 8, OutputBatch("location", "orders", 8, plan="other"))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT * FROM orders").fetchall() == [("tea", 3.5)] * 2


def test_a_sink_of_one_s_own_writes_a_batch_once() -> None:
    (code,) = (each for each in blocks("outputs.md", "python") if "def write(self" in each)
    newest: dict[tuple[str, ...], tuple[int, str, str]] = {}
    rows: list[str] = []

    def insert(table: str, df: str, output: OutputBatch, plan: str, write: str) -> None:
        newest[table, output.location_id, output.output] = (output.batch_id, plan, write)
        rows.append(df)

    names: dict[str, Any] = {
        "newest_batch": lambda *output: newest.get(output, (-1, "", "")),
        "insert": insert,
    }
    exec(code, names)
    write = names["Warehouse"]("pages").write

    def batch(batch_id: int, run: str, plan: str = "p") -> OutputBatch:
        return OutputBatch("location of a page", "rows", batch_id, run=run, plan=plan)

    for batch_id, run in ((7, "first"), (7, "second"), (8, "second")):
        write(f"of {batch_id}", batch(batch_id, run))
    for late, why in (
        (batch(7, "first"), "has batch 8 already"),
        (batch(8, "third", "another"), "written already, with other records"),
        (batch(8, "second"), "already in this run"),
    ):
        with pytest.raises(SinkError, match=why):
            write("lost", late)
    assert rows == ["of 7", "of 8"]


def test_the_program_of_the_tour(
    sc: SparkContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, commands = (blocks("tour.md", language)[0] for language in ("python", "bash"))
    text = tmp_path / "input.txt"
    printed: list[str] = []

    def is_printed() -> bool:
        printed.append(capsys.readouterr().out)
        return "('be', 2)" in "".join(printed)

    for _ in range(2):
        with text.open("a") as more:
            more.write("be or be\n")
        with program(code.replace("/tmp/words", str(tmp_path)), sc) as running:
            running.wait_for(is_printed)
        printed.clear()
    told = shell([commands.replace("/tmp/words", str(tmp_path))], tmp_path)
    assert told.count("be or be") == 2, told
    assert "tail-0 (string)" in told
    formats = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    kept = {re.sub(r"\d{5,}", "<ms>", path.name) for path in (tmp_path / "checkpoint").iterdir()}
    assert [name for name in sorted(kept) if f"`{name}" not in formats] == []
