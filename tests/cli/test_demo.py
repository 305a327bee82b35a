from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli.demo import command
from penstock.cli.demo.feeder import Feeder, endless_text, source_files
from penstock.cli.demo.outcome import Outcome
from penstock.cli.demo.progress import Progress
from penstock.cli.demo.word_counts import Comparison, compare, count_fed, count_sink
from penstock.cli.main import app
from penstock.errors import ConfigError
from tests.waiting import WAIT_S, eventually

KEYS = ["fed", "processed", "lost", "duplicated", "restarts", "records_per_s", "recovery_s"]


def outcome_of(totals: Comparison, restarts: int = 2) -> Outcome:
    return Outcome(
        fed=totals.fed,
        processed=totals.processed,
        lost=totals.lost,
        duplicated=totals.duplicated,
        restarts=restarts,
        records_per_s=1000.0,
        recovery_s=5.0,
    )


class TestLedger:
    def test_equal_counts_have_no_difference(self) -> None:
        assert compare({"a": 2, "b": 1}, {"b": 1, "a": 2}) == Comparison(3, 3, 0, 0)

    def test_words_too_few_are_lost(self) -> None:
        assert compare({"a": 5, "b": 1}, {"a": 3}) == Comparison(6, 3, 3, 0)

    def test_words_too_many_are_duplicated(self) -> None:
        assert compare({"a": 5}, {"a": 7, "x": 1}) == Comparison(5, 8, 0, 3)

    def test_a_loss_and_a_double_do_not_cancel_out(self) -> None:
        assert compare({"a": 2, "b": 2}, {"a": 1, "b": 3}) == Comparison(4, 4, 1, 1)

    def test_fed_words_stand_between_ascii_white_space_only(self, tmp_path: Path) -> None:
        (tmp_path / "app.log").write_bytes("a\tb\x0ba \x0c a\u00a0b\r\n\n".encode())
        (tmp_path / "app.log.1").write_bytes("größe a\x1cb\n".encode())

        counts = count_fed(sorted(tmp_path.iterdir()))

        assert counts == {"a": 2, "b": 1, "a\u00a0b": 1, "größe": 1, "a\x1cb": 1}

    def test_sink_counts_are_summed_over_batches(self, tmp_path: Path) -> None:
        for batch, counts in enumerate([{"a": 2, "b": 1}, {}, {"a": 3}]):
            write_batch(tmp_path / f"batch={batch}", counts)

        assert count_sink(tmp_path) == {"a": 5, "b": 1}

    def test_a_sink_that_was_never_written_counts_nothing(self, tmp_path: Path) -> None:
        assert count_sink(tmp_path / "counts") == {}


def write_batch(folder: Path, counts: dict[str, int]) -> None:
    folder.mkdir(parents=True)
    columns = {"word": pa.array(list(counts), pa.string()), "count": list(counts.values())}
    schema = pa.schema([("word", pa.string()), ("count", pa.int64())])
    pq.write_table(pa.table(columns, schema=schema), folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()


class TestCommand:
    @pytest.fixture
    def ends_with(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Run the command with a given outcome in place of a run."""

        def invoke(outcome: Outcome, *options: str) -> Any:
            monkeypatch.setattr(command, "check_java", lambda _environ: _JavaIsThere)
            monkeypatch.setattr(command, "run_demo", lambda *_: outcome)
            monkeypatch.setattr(signal, "signal", lambda *_: None)
            return CliRunner().invoke(app, ["demo", *options])

        return invoke

    @pytest.mark.parametrize(
        "sunk",
        [{"a": 4, "b": 1}, {"a": 6, "b": 1}, {"a": 4, "b": 2}, {"a": 5}],
        ids=["lost", "duplicated", "both", "whole word lost"],
    )
    def test_any_difference_is_exit_status_1(self, ends_with: Any, sunk: dict[str, int]) -> None:
        result = ends_with(outcome_of(compare({"a": 5, "b": 1}, sunk)))

        assert result.exit_code == 1
        assert "differ from what was fed" in result.stdout

    def test_no_difference_is_exit_status_0_and_a_table(self, ends_with: Any) -> None:
        result = ends_with(outcome_of(Comparison(1234, 1234, 0, 0)))

        assert result.exit_code == 0
        for title in ("fed", "processed", "lost", "duplicated", "restarts", "records/s"):
            assert title in result.stdout
        assert "recovery seconds" in result.stdout
        assert "1,234" in result.stdout

    def test_json_is_the_last_line(self, ends_with: Any) -> None:
        result = ends_with(outcome_of(Comparison(5, 4, 1, 0)), "--json")

        assert result.exit_code == 1
        last = json.loads(result.stdout.splitlines()[-1])
        assert list(last) == KEYS
        assert (last["fed"], last["processed"], last["lost"], last["duplicated"]) == (5, 4, 1, 0)

    def test_a_run_that_fed_nothing_fails(self, ends_with: Any) -> None:
        assert ends_with(outcome_of(Comparison(0, 0, 0, 0))).exit_code == 1

    def test_a_run_with_too_few_kills_fails(self, ends_with: Any) -> None:
        assert ends_with(outcome_of(Comparison(5, 5, 0, 0), restarts=1)).exit_code == 1

    def test_missing_java_is_named_with_its_fix(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nonexistent")
        monkeypatch.delenv("JAVA_HOME", raising=False)

        error = CliRunner().invoke(app, ["demo"]).exception

        assert isinstance(error, ConfigError)
        assert "Java >=17" in str(error)
        assert "install Java 17 or later" in str(error)


class _JavaIsThere:
    ok = True


class TestFeeder:
    def feed(self, folder: Path, source: bytes, total_bytes: int, seconds: float = 0) -> Feeder:
        folder.mkdir()
        (file := folder.parent / "source.py").write_bytes(source)
        feeder = Feeder(folder, endless_text([file]), total_bytes, seconds)
        feeder.is_followed.set()
        feeder.start()
        feeder.join(WAIT_S)
        assert feeder.is_done
        return feeder

    def test_every_line_is_on_disk_in_order(self, tmp_path: Path) -> None:
        source = b"".join(b"line %d, with some words\n" % n for n in range(1000))

        feeder = self.feed(tmp_path / "logs", source, len(source), seconds=0.2)

        files = ["app.log.1", "app.log", "web.log", "worker.log"]
        assert sorted(os.listdir(tmp_path / "logs")) == sorted(files)
        written = [(tmp_path / "logs" / name).read_bytes() for name in files]
        assert b"".join(written) == source
        assert all(part.endswith(b"\n") for part in written)
        assert (feeder.lines, feeder.bytes) == (1000, len(source))

    def test_a_source_that_is_too_short_is_read_again(self, tmp_path: Path) -> None:
        self.feed(tmp_path / "logs", b"one\ntwo", 80)

        lines = b"".join(f.read_bytes() for f in (tmp_path / "logs").iterdir()).split()
        assert set(lines) == {b"one", b"two"}
        assert len(lines) >= 20

    def test_rotation_waits_for_the_follower_and_renames(self, tmp_path: Path) -> None:
        (file := tmp_path / "source.py").write_bytes(b"some words\n" * 100)
        (folder := tmp_path / "logs").mkdir()
        feeder = Feeder(folder, endless_text([file]), 1100, 0)
        feeder.start()
        assert eventually(lambda: feeder.lines >= 25)
        assert os.listdir(folder) == ["app.log"]
        inode = (folder / "app.log").stat().st_ino
        feeder.is_followed.set()
        feeder.join(WAIT_S)
        assert (folder / "app.log.1").stat().st_ino == inode

    def test_one_that_is_stopped_ends_wherever_it_is(self, tmp_path: Path) -> None:
        (file := tmp_path / "source.py").write_bytes(b"some words\n")
        feeder = Feeder(tmp_path, endless_text([file]), 1 << 40, 1e6)
        feeder.start()
        feeder.stop()
        assert not feeder.is_done

    def test_sources_that_are_no_utf8_are_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "bad.py").write_bytes(b"\xff\xfe no text\n")
        (tmp_path / "empty.py").touch()
        (tmp_path / "good.py").write_bytes("schön\n".encode())

        texts = endless_text(sorted([*tmp_path.iterdir(), tmp_path / "missing.py"]))

        assert next(texts) + next(texts) == "schön\nschön\n".encode()

    def test_no_text_at_all_is_refused_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="none of 1 source files has text"):
            next(endless_text([tmp_path / "missing.py"]))

    def test_this_python_has_tens_of_megabytes_of_sources(self) -> None:
        files = source_files()

        assert len(set(files)) == len(files)
        assert sum(file.stat().st_size for file in files) > 10_000_000


class TestProgress:
    def say(self, progress: Progress, event: str, batch: int, lines: int, now_s: float) -> None:
        progress.take({"event": event, "batch": batch, "lines": lines}, now_s)

    def commit(self, progress: Progress, batch: int, lines: int, now_s: float) -> None:
        for event in ("planned", "started", "committed"):
            self.say(progress, event, batch, lines, now_s)

    def test_a_batch_that_runs_again_after_a_kill_counts_once(self) -> None:
        progress = Progress()
        self.say(progress, "planned", 0, 7, 1.0)
        self.say(progress, "started", 0, 7, 1.0)
        progress.restarted(2.0)
        self.commit(progress, 0, 7, 5.0)

        assert progress.committed_lines == 7
        assert progress.recovery_s == [3.0]
        outcome = progress.outcome(Comparison(9, 9, 0, 0))
        assert (outcome.restarts, outcome.recovery_s, outcome.records_per_s) == (1, 3.0, 1.8)

    def test_a_commit_whose_word_was_cut_off_by_a_kill_counts(self) -> None:
        progress = Progress()
        self.say(progress, "planned", 0, 7, 1.0)
        progress.restarted(2.0)
        self.commit(progress, 1, 3, 5.0)

        assert progress.committed_lines == 10

    def test_a_driver_is_up_when_it_committed_and_read_records_since_its_start(self) -> None:
        progress = Progress()
        self.commit(progress, 0, 0, 1.0)
        assert not progress.is_up
        self.commit(progress, 1, 5, 2.0)
        assert progress.is_up
        progress.restarted(3.0)
        assert not progress.is_up


@pytest.mark.spark
class TestWhole:
    def start(self, temporary: Path, *options: str) -> subprocess.Popen[str]:
        # A shell that runs the tests in the background makes them ignore SIGINT.
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from penstock.cli.demo import runner; runner._FEED_S_PER_RUN = 5.0;"  # a short feed
            "from penstock.cli.main import main; main()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", program, "demo", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary)},
        )

    def test_every_word_counts_once_through_a_kill(self, tmp_path: Path) -> None:
        with self.start(tmp_path, "--megabytes", "2", "--kills", "1", "--json") as process:
            printed, progress = process.communicate(timeout=WAIT_S)

        assert process.returncode == 0, progress
        [line] = printed.splitlines()
        result = json.loads(line)
        assert list(result) == KEYS
        assert (result["lost"], result["duplicated"], result["restarts"]) == (0, 0, 1)
        assert result["fed"] == result["processed"] > 100_000
        assert result["records_per_s"] > 0
        assert result["recovery_s"] > 0
        assert "kill -9" in progress
        assert "app.log.1" in progress
        assert not list(tmp_path.glob("penstock-*"))

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupted_run_leaves_nothing(self, tmp_path: Path, signum: int) -> None:
        with self.start(tmp_path, "--json") as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "records" in line:  # its processes run
                    break
            process.send_signal(signum)
            process.communicate(timeout=WAIT_S)

        assert process.returncode == 128 + signum
        assert not list(tmp_path.glob("penstock-*"))
