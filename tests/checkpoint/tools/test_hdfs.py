"""A location on HDFS, over WebHDFS as Hadoop's documentation describes it: it is read only."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.checkpoint.tools import (
    apply_plan,
    inspect,
    last_state,
    plan_rewind,
    validate,
)
from penstock.errors import ConfigError
from penstock.storage import attach_storage, open_storage
from tests.cli.commands import Commands

from .queries import write_query, write_stateless
from .test_changes import files_of

CHECKPOINT = Commands("checkpoint", columns=200)


class NameNode(http.server.BaseHTTPRequestHandler):
    """Serves a folder; refuses everything but reading."""

    root: Path
    changes: list[str]

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        path = self.root / urllib.parse.unquote(url.path).removeprefix("/webhdfs/v1/")
        if not path.exists():
            self._answer(404, _error("FileNotFoundException", str(path)))
        elif query["op"] == "LISTSTATUS":
            entries = [path] if path.is_file() else sorted(path.iterdir())
            statuses = [_status(each, "" if each == path else each.name) for each in entries]
            self._answer(200, json.dumps({"FileStatuses": {"FileStatus": statuses}}).encode())
        elif query["op"] == "GETFILESTATUS":
            self._answer(200, json.dumps({"FileStatus": _status(path, "")}).encode())
        else:
            assert query["op"] == "OPEN"
            first = int(query["offset"])
            self._answer(200, path.read_bytes()[first : first + int(query["length"])])

    def do_PUT(self) -> None:
        self.changes.append(self.path)
        self._answer(403, _error("AccessControlException", "read only"))

    do_POST = do_DELETE = do_PUT

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _status(path: Path, name: str) -> dict[str, object]:
    status = path.stat()
    kind = "DIRECTORY" if path.is_dir() else "FILE"
    facts = {"pathSuffix": name, "type": kind, "length": 0 if path.is_dir() else status.st_size}
    return facts | {"modificationTime": status.st_mtime_ns // 1_000_000}


def _error(exception: str, message: str) -> bytes:
    return json.dumps({"RemoteException": {"exception": exception, "message": message}}).encode()


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A URL, the folder behind it, and the requests that would have changed something."""
    root, changes = tmp_path / "hdfs", list[str]()
    root.mkdir()
    handler = type("Handler", (NameNode,), {"root": root, "changes": changes})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"webhdfs://127.0.0.1:{server.server_port}"
    yield url, root, changes
    storage = attach_storage(f"{url}/query")
    storage._files.session.close()  # type: ignore[attr-defined]
    storage._files.clear_instance_cache()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_location_on_hdfs_is_read(hdfs: tuple[str, Path, list[str]]) -> None:
    url, root, changes = hdfs
    place = write_query(root / "query", batches=5)
    for checksum in place.rglob(".*.crc"):  # HDFS has its own
        checksum.unlink()

    there, here = inspect(f"{url}/query"), inspect(place)
    assert there.batches == here.batches
    assert (there.operators, there.next, there.id) == (here.operators, here.next, here.id)
    assert last_state(f"{url}/query").next.first == 5
    assert validate(f"{url}/query").findings == ()
    (place / "offsets/4").write_bytes(b"")
    assert [each.path for each in validate(f"{url}/query").findings] == ["offsets/4"]
    with pytest.raises(ConfigError, match="not a checkpoint location"):
        inspect(f"{url}/none")
    assert changes == []


def test_a_location_on_hdfs_is_copied_and_not_changed(
    hdfs: tuple[str, Path, list[str]], tmp_path: Path
) -> None:
    url, root, changes = hdfs
    place = write_stateless(root / "query", batches=5)
    before = files_of(place)
    with pytest.raises(ConfigError, match="cannot be written to: its driver"):
        apply_plan(plan_rewind(f"{url}/query", to_batch=1))
    with pytest.raises(ConfigError, match="cannot be written to: its driver"):
        open_storage(f"{url}/query")

    CHECKPOINT.succeed("fork", f"{url}/query", str(tmp_path / "fork"), "--apply")
    assert inspect(tmp_path / "fork").next.first == 5
    assert files_of(place) == before
    assert changes == []
