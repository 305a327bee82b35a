from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import demo
from penstock.cli.doctor import CheckResult
from penstock.cli.main import app
from penstock.errors import ConfigError
from tests.waiting import WAIT_S

KEYS = ["fed", "counted", "lost", "duplicated", "restarts"]


@pytest.mark.parametrize(
    ("counted", "lost", "duplicated"),
    [
        ({b"a": 5, b"b": 1}, 0, 0),
        ({b"a": 3}, 3, 0),
        ({b"a": 7, b"b": 1, b"x": 1}, 0, 3),
        ({b"a": 4, b"b": 2}, 1, 1),  # a loss and a double do not cancel out
    ],
)
def test_counts_are_compared_word_by_word(
    counted: dict[bytes, int], lost: int, duplicated: int
) -> None:
    facts = demo.compare(Counter({b"a": 5, b"b": 1}), Counter(counted))
    assert facts == {
        "fed": 6,
        "counted": sum(counted.values()),
        "lost": lost,
        "duplicated": duplicated,
    }


def test_the_text_is_whole_lines_of_the_size() -> None:
    text = demo.source_text(3_000_000)
    assert 2_990_000 < len(text) <= 3_000_000
    assert text.endswith(b"\n")
    assert len(set(text.decode().split())) > 10_000


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command on a given text, with given counts in place of a run."""

    def invoke(text: bytes, counted: bytes, *options: str) -> Any:
        java = CheckResult("Java", True, "17", "")
        monkeypatch.setattr(demo, "check_java", lambda _environ: java)
        monkeypatch.setattr(demo, "source_text", lambda _size: text)
        monkeypatch.setattr(demo, "run_demo", lambda *_: Counter(counted.split()))
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        return CliRunner().invoke(app, ["demo", *options])

    return invoke


@pytest.mark.parametrize(
    ("text", "counted"), [(b"a a", b"a"), (b"a", b"a b"), (b"a b", b"a a"), (b"", b"")]
)
def test_any_difference_is_exit_status_1(ends_with: Any, text: bytes, counted: bytes) -> None:
    result = ends_with(text, counted)
    assert result.exit_code == 1
    assert "differ from what was fed" in result.output


def test_no_difference_is_exit_status_0_and_a_table(ends_with: Any) -> None:
    result = ends_with(b"a b a", b"b a a")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[1:6]] == [
        ["fed", "3"],
        ["counted", "3"],
        ["lost", "0"],
        ["duplicated", "0"],
        ["restarts", "2"],
    ]


def test_missing_java_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    error = CliRunner().invoke(app, ["demo"]).exception
    assert isinstance(error, ConfigError)
    assert "install Java 17 or later" in str(error)


@pytest.mark.spark
class TestWhole:
    def start(self, temporary: Path, *options: str) -> subprocess.Popen[str]:
        # A shell that runs the tests in the background makes them ignore SIGINT.
        program = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "from penstock.cli import demo; demo._RUN_S = 5.0;"  # a short feed
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
        assert result["fed"] == result["counted"] > 100_000
        assert "kill -9" in progress
        assert "app.log.1" in progress
        assert not list(tmp_path.glob("penstock-*"))

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupted_run_leaves_nothing(self, tmp_path: Path, signum: int) -> None:
        with self.start(tmp_path, "--json") as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "are committed" in line:  # its processes run
                    break
            process.send_signal(signum)
            process.communicate(timeout=WAIT_S)

        assert process.returncode == 128 + signum
        assert not list(tmp_path.glob("penstock-*"))
