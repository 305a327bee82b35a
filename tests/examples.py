"""A process that runs example programs one after the other, and what they print."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.driver import Driver
from tests.waiting import eventually

__all__ = ["Example", "Examples", "LineServer"]

_PROGRAM = Path(__file__).with_name("examples_program.py")


class LineServer:
    """Sends the same text to everyone who connects, and keeps the connection open."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = str(self._socket.getsockname()[1])
        self.text = ""
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the end of the test
            while True:
                client, _ = self._socket.accept()
                self._clients.append(client)
                client.sendall(self.text.encode())

    def send(self, text: str) -> None:
        """Send more to those that are connected."""
        for client in self._clients:
            client.sendall(text.encode())

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        for each in (self._socket, *self._clients):
            each.close()


class Example:
    """A running example."""

    def __init__(self, process: Driver, output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def printed(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def wait_for(self, *texts: str) -> None:
        self.wait_until(lambda: all(text in self.printed for text in texts))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for what the example does; fail with what it said when it ends before."""
        eventually(lambda: condition() or self._process.process.poll() is not None)
        assert condition(), self.printed[-3000:] + self._process.log()[-3000:]


class Examples:
    """A process that runs one example after the other, all in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = Driver(_PROGRAM, [str(folder)], folder / "errors")

    def __enter__(self) -> Examples:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()

    def start(self, program: Path, *args: str) -> Example:
        """Run a program, which must be a file of its own name, as Python does."""
        output = self.folder / f"{program.stem}.out"
        output.unlink(missing_ok=True)
        self._process.tell(json.dumps([str(output), str(program), *args]))
        return Example(self._process, output)

    def stop(self) -> None:
        """Stop the example's program, and see the example end by itself."""
        self._process.tell("stop")
        self.wait_ended()

    @contextmanager
    def running(self, program: Path, *args: str) -> Iterator[Example]:
        """Run a program for the length of a block; the next one takes its SparkContext.

        After a failure the next one has a process of its own.
        """
        try:
            yield self.start(program, *args)
        except BaseException:
            self._process.restart()
            raise
        self._process.tell("leave")
        self.wait_ended()

    def wait_ended(self) -> None:
        """Wait until the example has ended without an error."""
        self._process.wait_line("ended")
