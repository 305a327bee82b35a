"""How a process ends by SIGTERM or SIGINT once its program is stopped, without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import shutdown
from penstock.streaming.context.life_cycle import LifeCycle, State
from tests.faults.pids import sleeps
from tests.waiting import WAIT_S, eventually

PROGRAM = """
import os, signal, sys, threading, time
sys.path.insert(0, {folder!r})
import shutdown
from shutdown import Shutdown, wait_in_steps

shutdown._IMPATIENT_S = 1000  # whenever they are handled, they came together
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
{before}
stopped = threading.Event()

def stop():
    print("stopping", flush=True)
    sys.stdin.read()  # until all signals were sent
    {stop}
    stopped.set()
    hook.remove()
    print("stopped", flush=True)

hook = Shutdown(stop, graceful={graceful})
hook.install()
try:
    os.write(1, b"ready\\n")  # a signal that strikes in print() may find its buffer locked
    {wait}
finally:
    print("finally", flush=True)
print("end", flush=True)
"""
SLEEP = "time.sleep(60)"
AWAIT = "wait_in_steps(stopped.wait); hook.leave()"


def run(
    wait: str,
    *,
    before: str = "",
    stop: str = "",
    signals: int = 1,
    number: signal.Signals = signal.SIGTERM,
    graceful: bool = True,
) -> tuple[int, list[str]]:
    """Run the program, send it signals once ready; return its exit code and what it printed."""
    # Without its package, which takes a second to import.
    folder = str(Path(shutdown.__file__).parent)
    code = PROGRAM.format(folder=folder, before=before, stop=stop, wait=wait, graceful=graceful)
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONUNBUFFERED": ""},  # or print() writes a line in two parts
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        watchdog = threading.Timer(WAIT_S, process.kill)
        watchdog.start()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if signals:  # Python sees one that comes just before the wait only when that ends
            assert eventually(lambda: sleeps(process.pid))
        for _ in range(signals):
            os.kill(process.pid, number)
        process.stdin.close()
        printed = process.stdout.read().splitlines()
        watchdog.cancel()
    lines = [line for line in printed if f"{number.name}: " not in line]
    return process.returncode, lines


@pytest.mark.parametrize("wait", [SLEEP, AWAIT])
@pytest.mark.parametrize("signals", [1, 3])
def test_the_main_thread_ends_as_a_jvm_does(wait: str, signals: int) -> None:
    assert run(wait, signals=signals) == (143, ["stopping", "stopped", "finally"])


def test_a_handler_that_was_there_before_decides() -> None:
    before = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    assert run(SLEEP, before=before) == (7, ["stopping", "stopped", "finally"])


def test_a_process_that_ignored_it_goes_on() -> None:
    before = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    assert run(AWAIT, before=before) == (0, ["stopping", "stopped", "finally", "end"])


def test_a_stop_that_fails_does_not_keep_the_process() -> None:
    code, printed = run(SLEEP, stop="raise OSError('disk')")
    assert code == 143
    assert printed[0] == "stopping"
    assert "OSError: disk" in printed
    assert printed[-1] == "finally"


def test_the_interpreter_s_exit_stops_the_program() -> None:
    assert run("pass", signals=0) == (0, ["finally", "end", "stopping", "stopped"])


def test_a_program_that_was_stopped_is_not_stopped_again() -> None:
    assert run("hook.remove()", signals=0) == (0, ["finally", "end"])


@pytest.mark.parametrize("wait", [SLEEP, AWAIT])
@pytest.mark.parametrize("graceful", [True, False])
@pytest.mark.parametrize("signals", [1, 3])
def test_an_interrupt_ends_without_a_traceback(wait: str, graceful: bool, signals: int) -> None:
    ended = run(wait, signals=signals, number=signal.SIGINT, graceful=graceful)
    assert ended == (130, ["stopping", "stopped", "finally"])


def test_a_signal_that_another_thread_receives_ends_a_wait() -> None:
    """Python handles it in the main thread, and does not wake that for it."""
    strike = """
    def strike():
        while wait_in_steps.__code__ not in [
            frame.f_code for frame, _ in traceback.walk_stack(sys._current_frames()[main])
        ]:
            time.sleep(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    main = threading.get_ident()
    threading.Thread(target=strike, daemon=True).start()
    """
    code, printed = run(strike + AWAIT, before="import traceback", signals=0)
    assert (code, printed[-3:]) == (130, ["stopping", "stopped", "finally"])


def test_a_signal_that_another_thread_receives_stops_an_awaited_program() -> None:
    life = LifeCycle()
    stopping = threading.Thread(target=life.enter, args=(State.STOPPED,))
    before = signal.signal(signal.SIGUSR1, lambda *_: stopping.start())
    strike = threading.Timer(
        0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    )
    strike.start()
    try:
        assert life.wait(WAIT_S)
        stopping.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_is_one_to_programs_that_catch_it() -> None:
    wait = "\n    ".join(
        ["try:", f"    {SLEEP}", "except KeyboardInterrupt:", "    print('caught')"]
    )
    ended = run(wait, number=signal.SIGINT, graceful=False)
    assert ended == (0, ["stopping", "stopped", "caught", "finally", "end"])


@pytest.mark.parametrize("handler", ["lambda *_: sys.exit(7)", "signal.SIG_IGN"])
def test_a_program_s_own_handler_of_interrupts_stays(handler: str) -> None:
    before = f"signal.signal(signal.SIGINT, {handler})"
    kept = "assert signal.getsignal(signal.SIGINT) is before"
    code, printed = run(
        kept, before=f"{before}; before = signal.getsignal(signal.SIGINT)", signals=0
    )
    assert (code, printed) == (0, ["finally", "end", "stopping", "stopped"])


def test_a_second_interrupt_ends_a_stop_that_hangs() -> None:
    stop = "while True: os.kill(os.getpid(), signal.SIGINT); time.sleep(0.05)"
    before = "import os; shutdown._IMPATIENT_S = 0"
    ended = run(SLEEP, before=before, stop=stop, number=signal.SIGINT, graceful=False)
    assert ended == (130, ["stopping"])
