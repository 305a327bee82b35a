"""``penstock ingest`` as real processes: drain, takeover, zombies, commands, bounds, full disks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import FencedError
from penstock.journal import JournalWriter
from penstock.receivers import Command, newest_run, read_status
from tests.free_port import free_port
from tests.ingest_process import ingest, open_stream, records
from tests.journal.helpers import PlainConsumer
from tests.mounts import mount, small_disk
from tests.receivers.supervised import override
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "app.log").touch()
    return tmp_path / "app.log"


def append(log: Path, first: int, count: int, width: int = 8) -> list[str]:
    lines = [f"{n:0{width}d}" for n in range(first, first + count)]
    with log.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return lines


def to(journal: Path, *more: str) -> list[str]:
    return ["--journal", str(journal), "--stream", "s", *more]


def following(log: Path, journal: Path, *more: str) -> list[str]:
    return ["tail", str(log), *to(journal, *more)]


def held(journal: Path) -> list[str]:
    return records(journal) if (journal / "s" / "stream.json").exists() else []


@contextmanager
def hangups(disposition: signal.Handlers) -> Iterator[None]:
    """Let processes that are started inherit that, however this one was started itself."""
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_drains(tmp_path: Path, journal: Path, log: Path, number: signal.Signals) -> None:
    lines = append(log, 0, 1000)
    with (
        hangups(signal.SIG_DFL),
        ingest(tmp_path, "one", *following(log, journal)) as process,
    ):
        process.wait_receiving()
        assert eventually(lambda: held(journal) == lines)
        lines += append(log, 1000, 10)
        assert eventually(lambda: held(journal) == lines)
        process.signal(number)
        assert process.wait() == 0
    status = read_status(open_stream(journal), "ingest")
    assert is_sealed(journal, "ingest-00000000")
    assert status is not None
    assert status.state == "stopped"


def test_a_port_that_is_taken_ends_the_first_start(tmp_path: Path, journal: Path) -> None:
    """At once, in one line, and before anything is taken over."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with ingest(tmp_path, "one", "http", "--port", str(port), *to(journal)) as process:
            assert process.wait() == 2
        (line,) = process.log().splitlines()
        assert f"port {port} of 127.0.0.1 is in use by another process" in line
        assert f"ss -ltnp 'sport = :{port}'" in line
    assert not list(open_stream(journal).writers())
    assert newest_run(open_stream(journal), "ingest") is None


def test_a_password_that_cannot_be_read_ends_the_first_start(tmp_path: Path, journal: Path) -> None:
    secret = ["--username", "u", "--password-file", str(tmp_path / "none")]
    with ingest(tmp_path, "one", "mqtt", "t", "--host", "h", *secret, *to(journal)) as process:
        assert process.wait() == 1
    (line,) = process.log().splitlines()
    assert "the password file cannot be read" in line


def test_a_port_that_its_predecessor_has_is_waited_for(tmp_path: Path, journal: Path) -> None:
    port = free_port()
    command = ["http", "--port", str(port), *to(journal)]
    with ingest(tmp_path, "one", *command) as first:
        first.wait_receiving()
        with ingest(tmp_path, "two", *command) as second:
            second.wait_receiving()
            assert first.wait() == 3
            assert (
                httpx.post(f"http://127.0.0.1:{port}", json="x", timeout=WAIT_S).status_code == 200
            )
            assert second.drain() == 0


def test_nohup_is_kept_to(tmp_path: Path, journal: Path, log: Path) -> None:
    lines = append(log, 0, 10)
    with (
        hangups(signal.SIG_IGN),
        ingest(tmp_path, "one", *following(log, journal)) as process,
    ):
        process.wait_receiving()
        process.signal(signal.SIGHUP)
        lines += append(log, 10, 10)
        assert eventually(lambda: held(journal) == lines)
        assert process.drain() == 0


def test_what_is_held_at_a_signal_becomes_durable_and_is_acked(
    tmp_path: Path, journal: Path
) -> None:
    """Also what waits for the block interval, which a kill would lose."""
    acks = tmp_path / "acks"
    arguments = ["tests.ingest_process:Counting", "--arg", "count=50", "--arg", f"acks={acks}"]
    with ingest(
        tmp_path, "one", "custom", *arguments, "--arg", "stop=false", *to(journal)
    ) as process:
        process.wait_receiving()
        assert process.drain() == 0
    assert records(journal) == [str(n) for n in range(50)]
    assert acks.read_text().split() == [str(n) for n in range(50)]


def test_a_second_signal_ends_at_once(tmp_path: Path, journal: Path) -> None:
    with ingest(
        tmp_path, "one", "custom", "tests.ingest_process:HangingStop", *to(journal)
    ) as process:
        process.wait_receiving()
        process.signal(signal.SIGTERM)
        process.wait_log("SIGTERM: stopping")
        assert process.is_running()
        process.signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_commands_by_file(tmp_path: Path, journal: Path, log: Path) -> None:
    lines = append(log, 0, 10)
    with ingest(tmp_path, "one", *following(log, journal)) as process:
        assert eventually(lambda: held(journal) == lines)
        stream = open_stream(journal)
        override(stream, "ingest", Command(paused=True))

        def is_paused() -> bool:
            lines.extend(append(log, len(lines), 1))
            return not eventually(lambda: held(journal) == lines, within_s=1)

        assert eventually(is_paused)
        override(stream, "ingest", Command())
        assert eventually(lambda: held(journal) == lines)
        override(stream, "ingest", Command(stop=True))
        assert process.wait() == 0


def test_a_second_process_of_the_name_takes_over(tmp_path: Path, journal: Path, log: Path) -> None:
    lines = append(log, 0, 500)
    with ingest(tmp_path, "one", *following(log, journal)) as first:
        assert eventually(lambda: held(journal) == lines)
        with ingest(tmp_path, "two", *following(log, journal)) as second:
            second.wait_receiving()
            lines += append(log, 500, 500)
            assert first.wait() == 3
            assert "took over" in first.log() or "successor" in first.log()
            assert eventually(lambda: held(journal) == lines)
            status = read_status(open_stream(journal), "ingest")
            assert status is not None
            assert (status.state, status.pid) == ("started", second.pid)
            assert second.drain() == 0
    assert held(journal) == lines


def test_a_zombie_is_fenced(tmp_path: Path, journal: Path, log: Path) -> None:
    lines = append(log, 0, 500)
    with ingest(tmp_path, "one", *following(log, journal)) as first:
        assert eventually(lambda: held(journal) == lines)
        first.signal(signal.SIGSTOP)
        lines += append(log, 500, 500)
        with ingest(tmp_path, "two", *following(log, journal)) as second:
            assert eventually(lambda: held(journal) == lines)
            lines += append(log, 1000, 500)
            first.signal(signal.SIGCONT)
            assert first.wait() == 3
            assert eventually(lambda: held(journal) == lines)
            assert second.drain() == 0
    assert held(journal) == lines


def test_it_takes_over_from_a_process_of_an_earlier_run_that_wakes(
    tmp_path: Path, journal: Path, log: Path
) -> None:
    """That one slept between reading its command and claiming its epoch."""
    lines = append(log, 0, 500)
    with ingest(tmp_path, "one", *following(log, journal)) as process:
        assert eventually(lambda: held(journal) == lines)
        woken = JournalWriter(open_stream(journal), "ingest")
        lines += append(log, 500, 500)
        assert eventually(lambda: held(journal) == lines)
        woken.append("never stored")
        with pytest.raises(FencedError):
            woken.flush()
        woken.abandon()
        assert process.drain() == 0
    assert held(journal) == lines


def test_it_goes_on_after_a_kill_and_without_its_parent(
    tmp_path: Path, journal: Path, log: Path
) -> None:
    lines = append(log, 0, 500)
    with ingest(tmp_path, "one", *following(log, journal)) as first:
        assert eventually(lambda: held(journal) == lines)
        first.kill()
    lines += append(log, 500, 500)
    # A shell that begins the second one and ends, as a service manager's helper may.
    command = [sys.executable, "-c", "from penstock.cli.main import main; main()", "ingest"]
    shell = ["sh", "-c", '"$@" >/dev/null 2>&1 & echo $!', "sh", *command]
    started = subprocess.run(
        [*shell, *following(log, journal)], check=True, capture_output=True, text=True
    )
    pid = int(started.stdout)
    try:
        assert eventually(lambda: held(journal) == lines)
        lines += append(log, 1000, 100)
        assert eventually(lambda: held(journal) == lines)
    finally:
        os.kill(pid, signal.SIGTERM)
    assert eventually(lambda: is_sealed(journal, "ingest-00000001"))


def is_sealed(journal: Path, writer: str) -> bool:
    newest = open_stream(journal).newest(writer)
    return newest is not None and newest.sealed


def bytes_held(journal: Path, receiver: str = "*") -> int:
    files = journal.glob(f"s/{receiver}-*/*.parquet")
    sizes = [path.stat().st_size for path in files if path.exists()]
    return sum(size for size in sizes if size > 4000)  # seals are smaller


def test_a_process_keeps_to_its_bound_beside_others_and_goes_on_when_blocks_retire(
    tmp_path: Path, journal: Path
) -> None:
    bound = 64 << 20
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    lines = [append(logs[0], 0, 80_000, width=900), append(logs[1], 0, 10_000, width=901)]
    to_a = ["--receiver", "a", "--max-journal-bytes", "64m"]
    with (
        ingest(tmp_path, "a", *following(logs[0], journal, *to_a)) as a,
        ingest(tmp_path, "b", *following(logs[1], journal, "--receiver", "b")) as b,
    ):
        most = 0
        seen: set[str] = set()

        def waits() -> bool:
            nonlocal most
            most = max(most, bytes_held(journal, "a"))
            return most > bound or "The source waits" in a.log()

        assert eventually(waits)
        assert bound // 2 < most <= bound
        consumer = PlainConsumer(open_stream(journal))

        def consume() -> bool:
            nonlocal most
            most = max(most, bytes_held(journal, "a"))
            seen.update(consumer.take())
            return len(seen) == 90_000

        assert eventually(consume), f"{len(seen)} of 90000"
        assert most <= bound
        assert [a.drain(), b.drain()] == [0, 0]
    assert seen == {line for each in lines for line in each}


def test_a_full_journal_ends_it_when_it_is_told_to_fail(
    tmp_path: Path, journal: Path, log: Path
) -> None:
    append(log, 0, 70_000, width=1000)
    limits = ["--max-journal-bytes", "64m", "--when-full", "fail"]
    with ingest(tmp_path, "one", *following(log, journal, *limits)) as process:
        assert process.wait() == 4
        assert "the journal has no room" in process.log()
    assert bytes_held(journal) <= 64 << 20


def test_http_is_refused_at_the_lag_limit_until_a_consumer_commits(
    tmp_path: Path, journal: Path
) -> None:
    with ingest(tmp_path, "one", "http", "--port", "0", *to(journal, "--max-lag", "10")) as process:
        process.wait_receiving()
        status = read_status(open_stream(journal), "ingest")
        assert status is not None
        assert status.listening_at is not None
        url = status.listening_at

        def post(body: str) -> httpx.Response:
            headers = {"content-type": "text/plain"}
            return httpx.post(f"{url}/", content=body, headers=headers, timeout=WAIT_S)

        taken = 0
        while taken < 10:
            taken += post("a\n").status_code == 200
        refused = [post("a\n") for _ in range(3)]
        assert {answer.status_code for answer in refused} == {429}
        assert all("retry-after" in answer.headers for answer in refused)
        assert len(PlainConsumer(open_stream(journal)).take()) == 10
        assert eventually(lambda: post("b\n").status_code == 200)
        assert process.drain() == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "2m") as place:
        yield place


def test_it_goes_on_when_the_disk_has_room_again(tmp_path: Path, disk: Path, log: Path) -> None:
    journal = disk / "journal"
    lines = append(log, 0, 100)
    with ingest(tmp_path, "one", *following(log, journal)) as process:
        assert eventually(lambda: held(journal) == lines)
        filler = disk / "filler"
        filler.write_bytes(bytes(_free(disk) - (32 << 10)))
        lines += append(log, 100, 2000, width=60)
        process.wait_log("the writer broke")
        filler.unlink()
        assert eventually(lambda: held(journal) == lines)
        assert not mount("-o", "remount,ro", str(disk))
        lines += append(log, 5000, 10)
        assert not eventually(lambda: held(journal) == lines, within_s=0.5)
        assert process.is_running()
        assert not mount("-o", "remount,rw", str(disk))
        assert eventually(lambda: held(journal) == lines)
        assert process.drain() == 0


def _free(disk: Path) -> int:
    state = os.statvfs(disk)
    return state.f_bavail * state.f_frsize


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["custom", "tests.nowhere:Nothing"], "cannot be imported"),
        (["custom", "tests.ingest_process:Ingest"], "not a subclass"),
        (["custom", "nonsense"], "names no class"),
        (["custom", "tests.ingest_process:Counting", "--arg", "x"], "not of the form name=value"),
        (["custom", "tests.ingest_process:Counting", "--arg", "wrong=1"], "does not accept"),
        (["socket", "--host", "h", "--port", "99999"], "not a TCP port"),
        (["http", "--schema", "id integer"], "is not a record schema"),
        (["http", "--schema", "at timestamp[ns]"], "Spark cannot read column 'at'"),
        (["http", "--schema", "missing.avsc"], "not a record schema"),
        (["http", "--content-type", "text/plain=xml"], "cannot be read as 'xml'"),
        (["http", "--content-type", "text/plain"], "or --content-type text/plain=json"),
        (["http", "--finer-times", "round"], "--finer-times is 'round'"),
        (
            ["http", "--host", "0.0.0.0"],
            "give --token-file FILE, a file with a bearer token, or --ho",
        ),
        (["http", "--tls-key", "x"], "give both --tls-certificate and --tls-key"),
        (["tail", "x", "--max-journal-bytes", "5"], "journal's bytes is 5"),
        (["tail", "x", "--max-journal-bytes", "much"], "is not a size"),
        (["tail", "x", "--receiver", "x" * 300], "is not allowed"),
    ],
)
def test_wrong_options_have_status_2(journal: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["ingest", *arguments, *to(journal)])
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not journal.exists()
