"""Bodies to records: what each type and schema takes, and where a refusal points."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.receivers.http import record_limits
from penstock.receivers.http.answers import RefusedError
from penstock.receivers.http.bodies import BodyParser
from penstock.receivers.http.head import Kind
from penstock.receivers.lines import LineSplitter

COLUMNS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("at", pa.timestamp("ms"))]
)
PADDING = b'{"pad": "' + b"x" * 5000 + b'"}\n'
"""Makes a body large enough for Arrow's parser."""


def records(schema: Any, kind: Kind, body: bytes) -> list[Any]:
    parsed = BodyParser(schema).parse(kind, body)
    if isinstance(parsed, str | bytes):
        return [parsed]
    return parsed.to_pylist() if isinstance(schema, pa.Schema) else parsed.column(0).to_pylist()


def refusal(schema: Any, kind: Kind, body: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        BodyParser(schema).parse(kind, body)
    return caught.value


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", b"\xff", "é".encode()]), min_size=1))
def test_text_is_split_as_every_other_source_splits_it(pieces: list[bytes]) -> None:
    body, splitter = b"".join(pieces), LineSplitter()
    batches = [*splitter.feed(body), *splitter.finish()]
    expected = [line for batch in batches for line in batch.column(0).to_pylist()]
    assert records("string", "text", body) == expected


def test_a_binary_body_is_one_record() -> None:
    assert records("binary", "binary", b"\x00\n\xff") == [b"\x00\n\xff"]


VALUES = [
    '{"a": 1}', '{"b": [1.00, 1e400]}', "12345678901234567890123", '"text"', "null", "[]",
    '{"n": null}', '{"s": "\\ud800 NaN Info"}', "{}", '{"deep": {"a": [{}]}}', "1" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
@settings(deadline=None)
@given(lines=st.lists(st.sampled_from([*VALUES, "", "  ", ' {"c": 1}\t']), min_size=1))
def test_json_lines_stay_the_text_that_was_sent(padding: bytes, lines: list[str]) -> None:
    expected = [line.strip() for line in lines if line.strip()]
    body = padding + "\n".join(lines).encode()
    if padding:
        expected.insert(0, padding.decode().strip())
    if expected:
        assert records("string", "ndjson", body) == expected
    else:
        assert refusal("string", "ndjson", body).status == 400


BAD_LINES = [
    b'{"a": }', b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1} {"b": 2}', b'{"a": 1}{"b": 2}', b"{",
    b'{"a": "\xff"}', b'{"a": 1} null', b"nul", b'{"a": "x\ry"}', b'{"a": 01}', b'{"a": "\x00"}',
    b'{"a": 1}}', b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"}{",
    b'{"a": 1}\x00{"b": 2}',
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_LINES)
@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
@pytest.mark.parametrize("schema", ["string", pa.schema([("a", pa.int64()), ("pad", pa.string())])])
def test_a_line_that_is_no_json_is_named(schema: Any, padding: bytes, bad: bytes) -> None:
    before = padding + b'{"a": 2}\n\n'
    found = refusal(schema, "ndjson", before + bad + b'\n{"a": 3}\n')
    assert found.status == 400
    assert found.where == {"line": before.count(b"\n") + 1}


def test_values_that_span_lines_are_refused_however_they_add_up() -> None:
    # As many values as lines, none of which is one.
    for body in (b'{"a":\n1}{"b": 2}\n', b'{"a": [{}\n,{}]}{}\n', b'{"a": {}\n}{}\n'):
        assert refusal("string", "ndjson", PADDING + body).where == {"line": 2}


def test_a_body_of_nulls_is_text_and_no_columns() -> None:
    body = b"null\n" * 2000
    assert records("string", "ndjson", body) == ["null"] * 2000
    assert refusal(COLUMNS, "ndjson", body).where == {"line": 1}


@pytest.mark.parametrize("padding", [0, 300], ids=["small", "large"])
def test_json_lines_become_columns(padding: int) -> None:
    rows = [{"id": n, "name": f"name {n}"} for n in range(padding)]
    body = "\n".join(
        [*map(json.dumps, rows), '{"name": "é", "id": 7, "at": "2026-01-02T03:04:05Z"}']
    )
    found = records(COLUMNS, "ndjson", body.encode())
    assert found[:-1] == [{**row, "at": None} for row in rows]
    assert found[-1] == {"id": 7, "name": "é", "at": datetime(2026, 1, 2, 3, 4, 5)}  # noqa: DTZ001


MISFITS = [
    ('{"id": "seven"}', "id"), ('{"id": 1.5}', "1.5"), ('{"id": 1, "other": 2}', "unexpected"),
    ('{"name": "no id"}', "'id' is missing"), ('{"id": null}', "'id' is missing"),
    ("[1]", "object"),
    ('{"id": 1, "name": 2}', "name"), ('{"id": 99999999999999999999}', "int64"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "reason"), MISFITS)
@pytest.mark.parametrize("before", [0, 1, 3, 500])
def test_a_row_that_does_not_fit_is_named(row: str, reason: str, before: int) -> None:
    good = ['{"id": 1, "name": "x"}'] * before
    found = refusal(COLUMNS, "ndjson", "\n".join([*good, row, '{"id": 2}']).encode())
    assert (found.status, found.where) == (400, {"line": before + 1})
    assert reason in str(found)
    found = refusal(COLUMNS, "json", f"[{','.join([*good, row])}]".encode())
    assert (found.status, found.where) == (400, {"index": before})


def test_rows_longer_than_a_block_of_the_parser_are_taken() -> None:
    rows = [{"id": n, "name": "x" * (3 << 20)} for n in range(2)]
    body = "\n".join(map(json.dumps, rows)).encode()
    assert [row["name"] for row in records(COLUMNS, "ndjson", body)] == [r["name"] for r in rows]
    assert records("string", "ndjson", body) == [json.dumps(row) for row in rows]


@settings(deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda item: st.lists(item) | st.dictionaries(st.text(max_size=3), item), max_leaves=8,
))  # fmt: skip
def test_an_array_is_a_record_an_item_and_anything_else_is_one_record(value: Any) -> None:
    items = value if isinstance(value, list) else [value]
    body = json.dumps(value, indent=1, ensure_ascii=False).encode()
    if items:
        assert [json.loads(item) for item in records("string", "json", body)] == items
    else:
        assert refusal("string", "json", body).status == 400


@pytest.mark.parametrize(
    ("body", "index"),
    [(b"[1, x]", 1), (b"[1 2]", 0), (b"[1,]", 1), (b"[1, 2", 1), (b"[1] 2", 0), (b"[NaN]", 0),
     (b"[", 0), (b"{", 0), (b"[[" + b"[" * 100_000, 0)],
)  # fmt: skip
def test_an_array_that_is_no_json_is_refused_with_the_index(body: bytes, index: int) -> None:
    found = refusal("string", "json", body)
    assert (found.status, found.where) == (400, {"index": index})


def test_too_many_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_limits, "MAX_RECORDS", 3)
    cases: list[tuple[Kind, bytes]] = [
        ("text", b"a\n" * 4), ("ndjson", b"1\n" * 4), ("json", b"[1, 2, 3, 4]"),
    ]  # fmt: skip
    for kind, body in cases:
        assert refusal("string", kind, body).status == 413
    assert refusal(COLUMNS, "ndjson", b'{"id": 1}\n' * 4).status == 413


@pytest.mark.parametrize(
    "schema", ["pickle", pa.schema([]), pa.schema([("x", pa.month_day_nano_interval())])]
)
def test_a_schema_that_no_body_fits_is_refused_at_construction(schema: Any) -> None:
    with pytest.raises(ConfigError):
        BodyParser(schema)
