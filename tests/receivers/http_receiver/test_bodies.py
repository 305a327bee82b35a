"""Bodies to records: what each type and schema takes, and where a refusal points."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.journal import RecordFormat
from penstock.receivers.http import json_text, record_limits
from penstock.receivers.http.answers import RefusedError
from penstock.receivers.http.bodies import BodyParser
from penstock.receivers.http.head import Kind
from penstock.receivers.lines import LineSplitter

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("at", pa.timestamp("ms")),
        ("days", pa.list_(pa.date32())),
    ]
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


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\r", b"\xff", "é".encode()]), min_size=1))
def test_text_is_split_as_every_other_source_splits_it(pieces: list[bytes]) -> None:
    body, splitter = b"".join(pieces), LineSplitter()
    batches = [*splitter.feed(body), *splitter.finish()]
    expected = [line for batch in batches for line in batch.column(0).to_pylist()]
    assert records("string", "text", body) == expected


@pytest.mark.parametrize("kind", ["text", "json", "ndjson", "binary"])
def test_a_byte_order_mark_is_not_part_of_the_first_record(kind: Kind) -> None:
    assert records("string", kind, b'\xef\xbb\xbf{"a": 1}') == ['{"a": 1}']
    assert refusal("string", kind, b"\xef\xbb\xbf").status == 400


def test_a_binary_body_is_one_record() -> None:
    assert records("binary", "binary", b"\x00\n\xff") == [b"\x00\n\xff"]


VALUES = [
    '{"a": 1}', '{"b": [1.00, 1e400]}', "12345678901234567890123", '"text"', "null", "[]",
    '{"n": null}', '{"s": "\\ud800 NaN Info"}', "{}", '{"deep": {"a": [{}]}}', "1" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("padding", [b"", PADDING], ids=["small", "large"])
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
    assert found[:-1] == [{**row, "at": None, "days": None} for row in rows]
    at = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
    assert found[-1] == {"id": 7, "name": "é", "at": at, "days": None}


MISFITS = [
    ('{"id": "seven"}', "id"), ('{"id": 1.5}', "1.5"), ('{"id": 1, "other": 2}', "unexpected"),
    ('{"name": "no id"}', "'id' is missing"), ('{"id": null}', "'id' is missing"),
    ("[1]", "object"),
    ('{"id": 1, "at": "0000-01-01 00:00:00"}', "0000-01-01"),
    ('{"id": 1, "days": [0, 2932897]}', "'days' holds 10000-01-01"),
    ('{"id": 1, "name": 2}', "name"), ('{"id": 99999999999999999999}', "int64"),
]  # fmt: skip


REASONS = [
    ("d", pa.date32(), '"2026-01-01"', "date32[day]: a number, days since 1970-01-01"),
    ("n", pa.int64(), '"1"', "int64: a whole number in its range"),
    ("n", pa.int64(), "1.5", "int64: a whole number in its range"),
    ("s", pa.string(), "1", "string"),
    ("l", pa.list_(pa.int32()), '["a"]', "list<item: int32>"),
    ("m", pa.decimal128(10, 2), '"1.234"', "decimal128(10, 2): text or a number"),
    ("t", pa.timestamp("us"), '"10000-01-01T00:00:00"', "timestamp[us]: ISO 8601 text such as"),
]


@pytest.mark.parametrize(("name", "kind", "sent", "wanted"), REASONS)
def test_a_refused_value_is_named_with_its_column_and_type(
    name: str, kind: pa.DataType, sent: str, wanted: str
) -> None:
    schema = pa.schema([("before", pa.int64()), (name, kind), ("after", pa.string())])
    row = f'{{"before": 1, "{name}": {sent}, "after": "x"}}'
    found = str(refusal(schema, "ndjson", f'{{"before": 0}}\n{row}\n'.encode()))
    assert f"line 2: column {name!r} must be {wanted}" in found
    assert found.endswith(f", not {sent}")


UTC_TIMES = [
    (".NET", "2026-11-25T01:02:03.1234567Z", "2026-11-25T01:02:03.123456"),
    (".NET with an offset", "2026-11-25T01:02:03.1234567+02:00", "2026-11-24T23:02:03.123456"),
    (".NET's least", "0001-01-01T00:00:00.0000000", "0001-01-01T00:00:00"),
    ("Go, Java", "2026-11-25T01:02:03.123456789Z", "2026-11-25T01:02:03.123456"),
    ("before 1970", "1969-12-31T23:59:59.9999999Z", "1969-12-31T23:59:59.999999"),
    ("lower case", "2026-11-25t01:02:03.5z", "2026-11-25T01:02:03.500"),
    ("both", "2026-11-25t01:02:03.1234567z", "2026-11-25T01:02:03.123456"),
    ("Postgres", "2026-11-25 01:02:03.1234567+00", "2026-11-25T01:02:03.123456"),
    ("-0800", "2026-11-25T01:02:03.123-0800", "2026-11-25T09:02:03.123"),
    ("a day", "2026-11-25", "2026-11-25"),
    ("hours", "2026-11-25T01+02", "2026-11-24T23:00"),
]


@pytest.mark.parametrize(("sent", "wanted"), [each[1:] for each in UTC_TIMES])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_are_taken_as_clients_write_them_and_cut_to_the_unit(
    sent: str, wanted: str, unit: str, zone: str | None
) -> None:
    kind = pa.timestamp(unit, zone)
    schema = pa.schema(
        [("at", kind), ("text", pa.string()), ("l", pa.list_(pa.struct([("at", kind)])))]
    )
    row = {"at": sent, "text": sent, "l": [{"at": sent}, {}]}
    digits = {"s": 0, "ms": 3, "us": 6}[unit]
    whole, _, fraction = wanted.partition(".")
    cut = f"{whole}.{fraction[:digits]}" if digits and fraction else whole
    at = pa.scalar(datetime.fromisoformat(cut), pa.timestamp(unit)).cast(kind).as_py()
    other = {"at": None, "text": None, "l": None}
    body = f"{json.dumps(row)}\n{json.dumps(other)}\n".encode()
    expected = [{"at": at, "text": sent, "l": [{"at": at}, {"at": None}]}, other]
    assert records(schema, "ndjson", body) == expected
    assert records(schema, "json", f"[{json.dumps(row)}]".encode()) == expected[:1]


@pytest.mark.parametrize(
    "sent",
    ["2026-11-25T01:02:60.1234567Z", "2026-11-25T24:00:00Z", "2026-11-25T01:02:03.1234567Zx",
     "2026-11-25T01:02:03.12x4567Z", "2026-13-25T01:02:03.1234567Z", "", "z", "10000-01-01t00:00z"],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_its_column(sent: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    found = refusal(schema, "ndjson", f'{{"at": "2026-01-01t00:00z"}}\n{{"at": "{sent}"}}'.encode())
    assert found.where == {"line": 2}
    assert "column 'at' must be timestamp[us, tz=UTC]: ISO 8601 text" in str(found)


def test_the_greatest_time_of_dotnet_is_taken() -> None:
    (found,) = records(
        pa.schema([("at", pa.timestamp("us"))]), "json", b'{"at": "9999-12-31T23:59:59.9999999"}'
    )
    assert found == {"at": datetime.fromisoformat("9999-12-31T23:59:59.999999")}


def test_finer_times_can_be_refused() -> None:
    schema = pa.schema([("at", pa.timestamp("ms", "UTC"))])
    parser = BodyParser(schema, cuts_times=False)
    assert parser.parse("json", b'{"at": "2026-11-25t01:02:03.123z"}')
    with pytest.raises(RefusedError, match=r"column 'at' must be .*03\.1234567Z"):
        parser.parse("json", b'{"at": "2026-11-25T01:02:03.1234567Z"}')


NESTED = pa.schema(
    [
        pa.field("points", pa.list_(pa.field("item", pa.struct([
            pa.field("x", pa.int8(), False), pa.field("at", pa.timestamp("us", "UTC"), False),
            ("tag", pa.string()),
        ]), False))),
        pa.field("of", pa.struct([pa.field("name", pa.string(), False)])),
    ]
)  # fmt: skip


def test_what_may_not_be_null_within_columns() -> None:
    when = {"at": "2026-11-25T01:02:03.1234567Z"}
    rows: list[Any] = [
        {"points": [{"x": 1, **when}, {"x": 2, **when, "tag": "t"}], "of": None},
        {"points": None, "of": {"name": "a"}},
        {"points": [], "of": {"name": "b"}},
    ]
    body = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    parsed = BodyParser(NESTED).parse("ndjson", body)
    assert isinstance(parsed, pa.Table)
    (batch,) = RecordFormat(NESTED).conform(parsed)
    assert [len(row["points"] or []) for row in batch.to_pylist()] == [2, 0, 0]
    assert [row["of"] for row in batch.to_pylist()] == [None, {"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ('{"points": [{"x": 1}]}', "points.item.at"), ('{"points": [null]}', "points.item"),
        ('{"of": {}}', "of.name"),
    ],
)  # fmt: skip
def test_a_null_within_a_column_is_named_with_its_path(row: str, path: str) -> None:
    found = refusal(NESTED, "ndjson", f'{{"of": null}}\n{row}\n'.encode())
    assert found.where == {"line": 2}
    assert f"column '{path}' is missing or null" in str(found)


SNS = b"""{
  "Type" : "Notification",
  "Message" : "{\\"AlarmName\\":\\"queue\\"}",
  "Timestamp" : "2026-11-25T01:02:03.456Z"
}"""


@pytest.mark.parametrize("body", [SNS, b"\n" + SNS + b"\r\n", b"[\n1,\n2\n]\n"])
def test_one_value_over_several_lines_of_text_is_one_record(body: bytes) -> None:
    assert records("string", "text", body) == [body.strip().decode()]


@pytest.mark.parametrize(
    "body", [b'{"a": 1}\n{"b": 2}', b"{\n}\n{}", b"[a]\n[b]", b"{\n}}", b"1\n2"]
)
def test_other_text_is_lines(body: bytes) -> None:
    assert records("string", "text", body) == body.decode().split("\n")


def typed(schema: Any, **content_types: str) -> dict[str, Kind]:
    given = {name.replace("_", "/"): form for name, form in content_types.items()}
    return dict(BodyParser(schema, given_types=given).types)


def test_a_setting_says_what_bodies_of_a_type_are() -> None:
    assert typed(COLUMNS, text_plain="json")["text/plain"] == "json"
    assert typed("string", text_plain="body", application_json="ndjson") == {
        "application/x-ndjson": "ndjson",
        "application/ndjson": "ndjson",
        "application/jsonl": "ndjson",
        "text/plain": "binary",
        "application/json": "ndjson",
    }
    assert typed("binary", application_pdf="body")["application/pdf"] == "binary"
    assert records("string", "binary", b"a\nb\xff") == ["a\nb\ufffd"]
    for schema, form in (
        (COLUMNS, "lines"),
        (COLUMNS, "body"),
        ("binary", "json"),
        ("string", "x"),
    ):
        with pytest.raises(ConfigError, match=f"'text/plain' cannot be read as '{form}'"):
            typed(schema, text_plain=form)


def test_several_values_as_json_are_told_of_ndjson() -> None:
    for schema in ("string", COLUMNS):
        found = refusal(schema, "json", b'{"id": 1}\n{"id": 2}\n')
        assert "application/x-ndjson (or what the receiver's content_types say)" in str(found)


def test_a_date_that_is_no_whole_day_is_named_with_its_line() -> None:
    for kind, sent in ((pa.date64(), "1"), (pa.list_(pa.date64()), "[0, 1]")):
        body = f'{{"d": null}}\n{{"d": {sent}}}\n'.encode()
        found = refusal(pa.schema([("d", kind)]), "ndjson", body)
        assert found.where == {"line": 2}
        assert "column 'd': date64[ms] 1 does not represent a whole number of days" in str(found)


def test_an_unexpected_column_and_a_repeated_one_are_named() -> None:
    found = str(refusal(COLUMNS, "ndjson", b'{"id": 1, "other": 2}\n'))
    assert "line 1: unexpected column 'other'; the columns are ['id'," in found
    found = str(refusal(COLUMNS, "ndjson", b'{"id": 1, "id": 2}\n'))
    assert "Column(/id) was specified twice" in found
    within = pa.schema([("s", pa.struct([("x", pa.int64())]))])
    assert "unexpected" in str(refusal(within, "ndjson", b'{"s": {"y": 1}}\n'))


def test_a_large_row_is_refused_with_its_column() -> None:
    row = f'{{"id": "1", "name": "{"x" * 100_000}"}}\n'
    found = str(refusal(COLUMNS, "ndjson", row.encode()))
    assert found.endswith("column 'id' must be int64: a whole number in its range")


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


@given(
    items=st.lists(
        st.one_of(st.text(max_size=6), st.integers(), st.lists(st.text(max_size=2), max_size=2)),
        max_size=8,
    ),
    space=st.sampled_from(["", " ", "\n  "]),
    window_bytes=st.integers(48, 80),
)
def test_an_array_is_read_piece_by_piece(items: list[Any], space: str, window_bytes: int) -> None:
    texts = [json.dumps(item, ensure_ascii=False) for item in items]
    body = f"{space}[{space}{f'{space},{space}'.join(texts)}{space}]{space}".encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "MAX_JSON_RECORD_BYTES", window_bytes)
        assert json_text.array_items(body) == texts


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'["' + b"x" * 40 + b'", 1]', 413),
        (b'"' + b"x" * 40 + b'"', 413),
        (b"[1, 2, 3, 4, 5, 6, 7, nonsense]", 400),
        (b"1 2", 400),
        (b"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] 12", 400),
        (b"[1, 2, 3, 4, 5, 6, 7, 8, 9, \xff]", 400),
    ],
    ids=["large item", "large value", "no JSON", "two values", "something after it", "no UTF-8"],
)
def test_a_large_array_is_refused_as_a_small_one_is(
    monkeypatch: pytest.MonkeyPatch, body: bytes, status: int
) -> None:
    monkeypatch.setattr(json_text, "MAX_JSON_RECORD_BYTES", 16)
    assert refusal("string", "json", body).status == status


def test_a_line_of_json_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_limits, "MAX_JSON_RECORD_BYTES", 16)
    found = refusal("string", "ndjson", b'1\n"' + b"x" * 20 + b'"\n')
    assert (found.status, found.where) == (413, {"line": 2})


@pytest.mark.parametrize("kind", ["ndjson", "json"])
def test_columns_bound_the_objects_of_a_body(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    monkeypatch.setattr(record_limits, "MAX_COLUMN_BYTES", 90)  # ten rows of nine bytes
    wide = pa.schema([("a", pa.list_(pa.struct([("x", pa.int64())])))])
    empty = b'{"a": [' + b",".join([b"{}"] * 10) + b"]}\n"
    assert refusal(wide, kind, empty).status == 413
    quoted = pa.schema([("a", pa.string())])
    assert records(quoted, kind, b'{"a": "' + b"{" * 50 + b'"}\n') == [{"a": "{" * 50}]


def objects_outside_strings(text: bytes) -> int:
    count, is_inside, is_escaped = 0, False, False
    for byte in text.decode():
        count += byte == "{" and not is_inside
        is_inside ^= byte == '"' and not is_escaped
        is_escaped = byte == "\\" and not is_escaped
    return count


@given(st.text('{}"\\a\n').map(str.encode), st.integers(1, 8))
def test_objects_are_those_outside_strings(text: bytes, piece_bytes: int) -> None:
    count = objects_outside_strings(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_limits, "_PIECE_BYTES", piece_bytes)
        patch.setattr(record_limits, "MAX_COLUMN_BYTES", count)
        record_limits.check_columns(text, 1)
        patch.setattr(record_limits, "MAX_COLUMN_BYTES", count - 1)
        if count:
            with pytest.raises(RefusedError):
                record_limits.check_columns(text, 1)


@pytest.mark.storm  # it measures
@pytest.mark.parametrize("unit", [b'\\"', b"\\\\", b'"', b'"\\'])
def test_counting_objects_takes_time_in_proportion_to_the_body(
    monkeypatch: pytest.MonkeyPatch, unit: bytes
) -> None:
    monkeypatch.setattr(record_limits, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(record_limits, "MAX_COLUMN_BYTES", 1)

    def cpu_s(units: int) -> float:
        text = b'"{{' + unit * units + b"\\"
        took = []
        for _ in range(3):
            start = time.thread_time()
            record_limits.check_columns(text, 1)
            took.append(time.thread_time() - start)
        return min(took)

    cpu_s(1)
    assert cpu_s(16_000) < 24 * cpu_s(2_000), "8 times the body; 64 times the work, if quadratic"


HOSTILE = """
import gzip, resource, sys
import pyarrow as pa
from penstock.receivers.http import record_limits
from penstock.receivers.http.answers import RefusedError
from penstock.receivers.http.bodies import BodyParser
from penstock.receivers.http.content import expand_gzip

SIZE = 24 << 20
record_limits.MAX_RECORDS = 100_000  # for speed: what is refused later costs in proportion
WIDE = pa.struct([(f"c{i}", pa.int64()) for i in range(100)])

def repeat(unit, before=b"", after=b""):
    return before + unit * (SIZE // len(unit)) + after

CASES = [
    ("string", "json", repeat(b"11,", b"[", b"1]")),
    ("string", "json", repeat(b"[],", b"[[", b"1]]")),
    ("string", "ndjson", repeat(b"11\\n")),
    ("string", "ndjson", repeat(b"\\n", b"", b"1\\n")),
    ("string", "ndjson", repeat(b'{"a":1},', b"1\\n[", b"1]")),
    (pa.schema(list(WIDE)), "json", repeat(b"{},", b"[", b"{}]")),
    (pa.schema([("a", pa.list_(WIDE))]), "ndjson", repeat(b"{},", b'{"a":[', b"{}]}\\n")),
]
sent = [(schema, kind, gzip.compress(body, 1)) for schema, kind, body in CASES]
del CASES
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for schema, kind, body in sent:
    try:
        BodyParser(schema).parse(kind, expand_gzip(body, 64 << 20))
    except RefusedError as refusal:
        print(refusal.status, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_small_bodies_that_expand_cost_little_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=True
    )
    answers = [line.split() for line in run.stdout.splitlines()]
    assert [status for status, _ in answers] == ["413"] * 7, run.stdout
    assert max(int(peak_mib) for _, peak_mib in answers) < 400
