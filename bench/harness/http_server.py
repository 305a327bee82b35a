"""An HTTP server to load: penstock's receiver before a journal, or the same server without one.

Usage: python -m harness.http_server ours|columns|bare

``bare`` is a Starlette application under uvicorn (uvloop, httptools, no access log, as the
receiver's) that reads the body and answers what the receiver would. It prints its port, and ends
when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import uvicorn
import uvloop
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
        _serve_bare()
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


def _serve_bare() -> None:
    application = Starlette(routes=[Route("/", _answer, methods=["POST"])])
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
