"""confluent-kafka's own deserializers as decoders, serializers as encoders, as docs/kafka.md shows.

The schema registry is a DOUBLE: a server of this test that knows three schemas by their ids.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessages

from penstock.journal.bad_records.parsing import Refusal
from penstock.kafka import KafkaRange, KafkaRecord
from penstock.kafka.decoding import Decoding
from penstock.kafka.sink import Encoder
from penstock.model import OffsetRange

CONTEXT = SerializationContext("clicks", MessageField.VALUE)
FIELDS = [{"name": "page", "type": "string"}]
AVRO = json.dumps({"type": "record", "name": "Click", "fields": FIELDS})
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Click",
        "type": "object",
        "properties": {"page": {"type": "string"}},
        "required": ["page"],
    }
)
PROTO = FileDescriptorProto(name="click.proto", syntax="proto3")  # as protoc makes it
PROTO.message_type.add(name="Click").field.add(
    name="page",
    number=1,
    type=FieldDescriptorProto.TYPE_STRING,
    label=FieldDescriptorProto.LABEL_OPTIONAL,
    json_name="page",
)
Click = GetMessages([PROTO])["Click"]
SCHEMAS = {
    "1": {"schema": AVRO},
    "2": {"schema": JSON, "schemaType": "JSON"},
    "3": {
        "schema": base64.b64encode(PROTO.SerializeToString()).decode(),
        "schemaType": "PROTOBUF",
    },
}
IN_PROTO = b"\0\x0a\x04home"
"""Which message of its file it is, and the message."""


class Double(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        number = self.path.partition("?")[0].rpartition("/")[2]
        self._answer(SCHEMAS.get(number))

    def do_POST(self) -> None:
        """Tell which number a schema of a subject has."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        numbers = {facts["schema"]: number for number, facts in SCHEMAS.items()}
        found = numbers.get(asked["schema"])
        facts = {"subject": "clicks-value", "version": 1, **asked}
        self._answer({**facts, "id": int(found)} if found else None)

    def _answer(self, found: object) -> None:
        body = json.dumps(found or {"error_code": 40403, "message": "no such schema"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Server", "a double of a schema registry")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class OfFields:
    """Serializes the message that has some fields."""

    def __init__(self, serializer: ProtobufSerializer) -> None:
        self._serializer = serializer

    def __call__(self, fields: dict[str, str], context: SerializationContext) -> bytes | None:
        return self._serializer(Click(**fields), context)


@pytest.fixture
def registry() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Double)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with SchemaRegistryClient({"url": f"http://127.0.0.1:{server.server_port}"}) as client:
        yield client
    server.shutdown()
    thread.join()
    server.server_close()


def framed(schema: int, payload: bytes) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    ("make", "good", "bad"),
    [
        (
            AvroDeserializer,
            framed(1, b"\x08home"),
            [b"no frame", framed(1, b"\x08ho"), framed(9, b"\x08home")],
        ),
        (
            lambda client: JSONDeserializer(JSON, schema_registry_client=client),
            framed(2, b'{"page": "home"}'),
            [b"{}", framed(2, b'{"page": 7}'), framed(2, b"{")],
        ),
        (
            lambda client: ProtobufDeserializer(Click, schema_registry_client=client),
            framed(3, IN_PROTO),
            [b"no frame", framed(3, IN_PROTO[:-1]), framed(9, IN_PROTO)],
        ),
    ],
)
def test_deserializers_are_decoders(
    registry: Any,
    make: Callable[[Any], Any],
    good: bytes,
    bad: list[bytes],
) -> None:
    deserializer = make(registry)
    refused: list[int] = []

    def note(cell: OffsetRange, refusals: Any) -> None:
        refused.extend(refusal.offset for refusal in refusals if isinstance(refusal, Refusal))

    decoding = Decoding(None, lambda value: deserializer(value, CONTEXT), note)
    values = [good, *bad, None]
    records = (KafkaRecord(None, v, "clicks", 0, n, None, ()) for n, v in enumerate(values))
    decoded = [r.value for r in decoding(KafkaRange("clicks", 0, 0, len(values)), records)]
    if isinstance(decoded[0], Click):
        decoded[0] = MessageToDict(decoded[0])
    assert decoded == [{"page": "home"}, None]
    assert refused == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "number", "sent"),
    [
        (lambda client, conf: AvroSerializer(client, AVRO, conf=conf), 1, b"\x08home"),
        (lambda client, conf: JSONSerializer(JSON, client, conf=conf), 2, b'{"page":"home"}'),
        (lambda client, conf: OfFields(ProtobufSerializer(Click, client, conf)), 3, IN_PROTO),
    ],
)
def test_serializers_are_encoders(registry: Any, make: Any, number: int, sent: bytes) -> None:
    serializer = make(registry, {"auto.register.schemas": False, "use.schema.id": number})
    encoder = Encoder("clicks", value=lambda click: serializer(click, CONTEXT))
    (outgoing,) = encoder([{"page": "home"}])
    assert [*outgoing.rows()] == [(None, framed(number, sent), None)]
    with pytest.raises(Exception, match=r"string|page|bad argument"):
        list(encoder([{"page": 7}]))
