"""``penstock state``: shows the state of mapWithState operators, and changes nothing.

Keys and their state are printed as JSON lines.
"""

from __future__ import annotations

import base64
import json
import pickle
import tempfile
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_line
from penstock.cli.tables import table_lines
from penstock.clock import iso_time
from penstock.errors import ConfigError
from penstock.state import (
    Partition,
    Version,
    decode_key,
    encode_key,
    partition_of,
    read_version,
    version_times,
)
from penstock.state.delta import Entry
from penstock.state.layout import partition_folder
from penstock.status import size
from penstock.storage import Storage, open_existing
from penstock.storage.trust import check_trusted

__all__ = ["app"]

app = typer.Typer(
    name="state", no_args_is_help=True, help="Show the state of mapWithState operators."
)

_Checkpoint = Annotated[str, typer.Option("--checkpoint", help="The checkpoint location.")]
_Operator = Annotated[str | None, typer.Option(help="The operator; optional if there is only one.")]
_COLUMNS = (
    "operator",
    "partitions",
    "keys",
    "files",
    "size",
    "versions",
    "newest version",
    "of the batch of",
)
_AtVersion = Annotated[
    int | None,
    typer.Option("--version", help="Time in ms of one of its versions.", show_default="newest"),
]


@app.command("ls")
def list_state(checkpoint: _Checkpoint, as_json: JsonOption = False) -> None:
    """List operators: their newest version, and what their partitions hold together.

    --json prints an object for each operator, with all versions and each partition.
    """
    storage = _open_state(checkpoint)
    found = [_describe(storage, operator) for operator in _operators(storage)]
    if as_json:
        for each in found:
            typer.echo(json.dumps(each))
        return
    rows = list(map(_row, found))
    for line in table_lines(_COLUMNS, rows, right=_COLUMNS[1:6]) if rows else ["no state"]:
        print_line(line)


@app.command("get")
def get_state(
    checkpoint: _Checkpoint,
    key: Annotated[
        str, typer.Argument(help='The key, as JSON ("a", 7, ["a", 7]); text may lack its quotes.')
    ],
    operator: _Operator = None,
    version: _AtVersion = None,
) -> None:
    """Print the state of one key; a key without state is an error, with exit status 1."""
    storage = _open_trusted(checkpoint)
    name, chosen = _choose(storage, operator, version)
    wanted = _parse_key(key)
    number = partition_of(wanted) % len(chosen.partitions)
    with tempfile.TemporaryDirectory(prefix="penstock-") as local:
        partition = Partition(storage, name, number, "", local)
        with partition.open(chosen.tips[number]) as database:
            entry = database.get(encode_key(wanted))
    if entry is None:
        raise ConfigError(
            f"key {json.dumps(wanted)} has no state in version {chosen.time_ms} of {name!r}",
            operation="get state",
            path=storage.url,
            ids={"operator": name},
            hint=_absent_hint(key, wanted),
        )
    typer.echo(_line(wanted, entry))


@app.command("dump")
def dump_state(
    checkpoint: _Checkpoint, operator: _Operator = None, version: _AtVersion = None
) -> None:
    """Print all keys and their state."""
    storage = _open_trusted(checkpoint)
    name, chosen = _choose(storage, operator, version)
    for key, entry in _rows(storage, name, chosen):
        typer.echo(_line(decode_key(key), entry))


def _open_state(checkpoint: str) -> Storage:
    hint = "give a checkpoint location in which mapWithState keeps its state"
    return open_existing(f"{checkpoint.rstrip('/')}/state", operation="open state", hint=hint)


def _open_trusted(checkpoint: str) -> Storage:
    """Open the state to read its pickles, which runs code in them."""
    storage = _open_state(checkpoint)
    check_trusted(checkpoint)
    check_trusted(storage.url)
    return storage.private()


def _operators(storage: Storage) -> list[str]:
    folders = [entry.name for entry in storage.list() if entry.is_folder]
    return [name for name in folders if version_times(storage, name)]


def _choose(storage: Storage, operator: str | None, version: int | None) -> tuple[str, Version]:
    names = _operators(storage)
    if operator is None and len(names) == 1:
        operator = names[0]
    if operator not in names:
        raise ConfigError(
            "no operator is named" if operator is None else f"operator {operator!r} does not exist",
            operation="choose operator",
            path=storage.url,
            hint=f"give --operator, one of: {', '.join(names)}" if names else "there is no state",
        )
    times = version_times(storage, operator)
    if version is not None and version not in times:
        raise ConfigError(
            f"operator {operator!r} has no version {version}",
            operation="choose version",
            path=storage.url,
            hint=f"give --version, one of: {', '.join(map(str, times))}",
        )
    return operator, read_version(storage, operator, times[-1] if version is None else version)


def _describe(storage: Storage, operator: str) -> dict[str, Any]:
    times = version_times(storage, operator)
    newest = read_version(storage, operator, times[-1])
    parts = [_describe_partition(storage, operator, *part) for part in enumerate(newest.tips)]
    totals = {name: sum(part[name] for part in parts) for name in ("keys", "files", "bytes")}
    return {"operator": operator, "versions": times, **totals, "partitions": parts}


def _row(described: dict[str, Any]) -> tuple[object, ...]:
    newest_ms = described["versions"][-1]
    partitions, versions = len(described["partitions"]), len(described["versions"])
    held = (described["keys"], described["files"], size(described["bytes"]))
    return (described["operator"], partitions, *held, versions, newest_ms, iso_time(newest_ms))


def _describe_partition(
    storage: Storage, operator: str, number: int, tip: str | None
) -> dict[str, Any]:
    newest = None if tip is None else Partition(storage, operator, number, "", "").describe(tip)
    files = storage.list(partition_folder(operator, number))
    return {
        "partition": number,
        "keys": newest.keys if newest else 0,
        "layers": len(newest.layers) + 1 if newest else 0,
        "files": len(files),
        "bytes": sum(file.size for file in files),
    }


def _rows(storage: Storage, operator: str, version: Version) -> Iterator[tuple[bytes, Entry]]:
    with tempfile.TemporaryDirectory(prefix="penstock-") as local:
        for number, tip in enumerate(version.tips):
            with Partition(storage, operator, number, "", local).open(tip) as database:
                yield from database.rows()


def _parse_key(text: str) -> Any:
    try:
        return _as_key(json.loads(text))
    except ValueError:
        return text


def _as_key(value: Any) -> Any:
    return tuple(map(_as_key, value)) if isinstance(value, list) else value


def _absent_hint(text: str, wanted: Any) -> str:
    """Return the hint for a missing key: text that is JSON is not taken as a string."""
    other = "" if isinstance(wanted, str) else f"; the text {text} is the key '{json.dumps(text)}'"
    return (
        f"`penstock state dump` prints all keys; a key loses its state by removal or timeout{other}"
    )


def _line(key: Any, entry: Entry) -> str:
    line = {"key": key, "state": _unpickled(entry.value), "touched_ms": entry.touched_ms}
    try:
        return json.dumps(line, default=_as_text)
    except (TypeError, ValueError):  # dicts with keys that JSON does not support, cycles
        return json.dumps({**line, "state": repr(line["state"])}, default=_as_text)


def _unpickled(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except Exception as error:  # its class cannot be imported here, or the class raises
        return f"<pickle of {len(data)} bytes: {error}>"


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
