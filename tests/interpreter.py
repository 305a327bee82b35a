"""The Python that Spark starts, forked from a process that has imported what it needs.

A run starts some three hundred interpreters, daemons of workers and planners of data sources, and
each would spend up to a second of a processor on imports. Spark starts ``interpreter_client.py``
instead, which hands its command line, environment, folder and standard files to this run's server.
The server forks, and the fork runs the module as ``python -m`` would. To Spark the client is that
process: it ends with the fork's exit code, passes SIGTERM on, and if it is killed, so is the fork.

What tests find by its place in a tree of processes needs a Python of its own: executors' workers.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, parent_process
from pathlib import Path

from tests.forked import FORKS

_CLIENT = Path(__file__).with_name("interpreter_client.py")


@contextmanager
def interpreters(folder: Path) -> Iterator[None]:
    """Serve interpreters for the length of a block; ``PYSPARK_PYTHON`` names what asks for one."""
    address, python = folder / "interpreters", folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{_CLIENT}" "{address}" "$@"\n')
    python.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen()
        server = FORKS.Process(target=_serve, args=(listener,))
        server.start()
    before, os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_PYTHON"], str(python)
    try:
        yield
    finally:
        os.environ["PYSPARK_PYTHON"] = before
        server.kill()
        server.join()


def _serve(listener: socket.socket) -> None:
    gc.freeze()  # forks need not look through what has been imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    parent = parent_process()
    assert parent is not None
    while parent.sentinel not in connection.wait([listener, parent.sentinel]):
        with listener.accept()[0] as client:
            if os.fork() == 0:
                _answer(listener, client)
                return


def _answer(listener: socket.socket, client: socket.socket) -> None:
    """Fork once more: stay with the client, and run the module in the fork."""
    listener.close()
    os.setsid()  # what signals the fork's process group, or its session's, hits no one else
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, *_ = socket.recv_fds(client, 1 << 20, 3)
    pid = os.fork()
    if pid == 0:
        client.close()
        _run(files, **json.loads(request))
        return
    with suppress(OSError):  # the client ended
        client.send(str(pid).encode())
    end = os.pidfd_open(pid)
    if end not in select.select([client, end], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        client.send(str(status).encode())
    os._exit(0)


def _run(
    files: Sequence[int], command: Sequence[str], environment: dict[str, str], folder: str
) -> None:
    """Be ``python -m MODULE ARGUMENT...``; multiprocessing ends it as Python does."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, max(files) + 1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [p for p in environment.get("PYTHONPATH", "").split(":") if p not in sys.path]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = list(command)
    warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)  # it is the point
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)
