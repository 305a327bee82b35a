"""An HTTP server to load: penstock's receiver before a journal, or one that others would write.

Usage: python -m harness.http_server ours|columns|bare|kafka [ADDRESS TOPIC]

``bare`` is a Starlette application under uvicorn (uvloop, httptools, no access log, as the
receiver's) that reads the body and answers what the receiver would. ``kafka`` sends each line of
the body to a topic, and answers when all in-sync replicas have the last of them. It prints its
port, and ends when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvicorn
import uvloop
from confluent_kafka import KafkaException, Producer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from harness.lines import EVENT_COLUMNS
from penstock.journal import JournalStream, RecordFormat
from penstock.receivers import (
    Command,
    HttpReceiver,
    ReceiverSettings,
    ReceiverSupervisor,
    ReceiverTask,
    claim_run,
    give_command,
)
from penstock.storage import open_storage


def main() -> None:
    """Serve until the input ends."""
    if sys.argv[1] == "bare":
        _serve(_answer)
    elif sys.argv[1] == "kafka":
        _serve(_ToKafka(*sys.argv[2:]))
    else:
        _serve_receiver(EVENT_COLUMNS if sys.argv[1] == "columns" else "string")


class _Announced(HttpReceiver):
    """Prints its port."""

    def onStart(self) -> None:
        super().onStart()
        print(str(self.listeningAt).rpartition(":")[2], flush=True)


def _serve_receiver(schema: str | pa.Schema) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        storage = open_storage(Path(folder))
        stream = JournalStream.create(storage, "clicks", RecordFormat(schema))
        run = claim_run(stream, "r0", uuid.uuid4().hex, Command())
        task = ReceiverTask(
            _Announced(port=0, schema=schema), stream, "r0", run, ReceiverSettings()
        )
        threading.Thread(target=_stop_with_input, args=(stream, run), daemon=True).start()
        ReceiverSupervisor(task).run()


def _stop_with_input(stream: JournalStream, run: str) -> None:
    sys.stdin.read()
    give_command(stream, "r0", run, Command(stop=True))


async def _answer(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse({"writer": "r0-00000000", "start": 0, "end": 1})


class _ToKafka:
    """Answers when a broker has what was posted."""

    def __init__(self, address: str, topic: str) -> None:
        settings = {"bootstrap.servers": address, "acks": "all", "linger.ms": 5}
        self._producer = Producer(settings)
        self._topic = topic
        threading.Thread(target=self._poll, daemon=True).start()

    def _poll(self) -> None:
        while True:
            self._producer.poll(1)

    async def __call__(self, request: Request) -> JSONResponse:
        lines = (await request.body()).split(b"\n")
        loop = asyncio.get_running_loop()
        delivered, left = loop.create_future(), len(lines)

        def note(error: Any, message: Any) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                loop.call_soon_threadsafe(delivered.set_exception, KafkaException(error))
            elif left == 0:
                loop.call_soon_threadsafe(delivered.set_result, None)

        for line in lines:
            self._producer.produce(self._topic, line, on_delivery=note)
        await delivered
        return JSONResponse({"lines": len(lines)})


def _serve(answer: Callable[[Request], Awaitable[JSONResponse]]) -> None:
    async def endpoint(request: Request) -> JSONResponse:
        return await answer(request)

    application = Starlette(routes=[Route("/", endpoint, methods=["POST"])])
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", loop="none")
    server = uvicorn.Server(config)
    loop = uvloop.new_event_loop()
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()

    async def serve() -> None:
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(server.servers[0].sockets[0].getsockname()[1], flush=True)
        await serving

    loop.run_until_complete(serve())


def _end_with_input(server: uvicorn.Server) -> None:
    sys.stdin.read()
    server.should_exit = True


if __name__ == "__main__":
    main()
