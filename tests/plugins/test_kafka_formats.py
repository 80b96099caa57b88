"""Avro and Protobuf with a schema registry: a real one, Apicurio Registry, which `scripts/services` starts."""

import base64
import json
import pickle
import re
import socket
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from attrs import frozen
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp
from tests.messages import ViewCount
from tests.topics import committed, contents, fill, make_topic

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Param, Secret, SinkSpec, Subject
from amadou.errors import AmadouError, CallbackError, SinkError, SourceError
from amadou_plugins.connectors import AvroFormat, KafkaRecord, KafkaSink, KafkaSource, ProtobufFormat
from amadou_runtime import TestRun, run

TIME = datetime(2025, 1, 1, tzinfo=timezone.utc)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
VIEWS = [{"name": "channel", "type": "string"}, {"name": "views", "type": "long"}, {"name": "at", "type": MILLIS}]
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


@cache
def client(registry: str) -> SchemaRegistryClient:
    """The client of another program."""
    return SchemaRegistryClient({"url": registry})


def record(*fields: Any, name: str = "Count") -> dict[str, Any]:
    """An Avro schema."""
    return {"type": "record", "name": name, "namespace": "amadou.tests", "fields": list(fields)}


SCHEMA = record(*VIEWS)
ROW = {"channel": "news", "views": 3, "at": TIME}


@frozen
class Count:
    channel: str
    views: int
    at: datetime


class Counting(Handler):
    """Passes the values of records on."""

    counts = SinkSpec(Count)

    def key_event(self, record: KafkaRecord[dict[str, Any]]) -> KeyedEvent[Any]:
        return KeyedEvent(record.value["channel"], record.value["at"], record.value)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.counts.collect(subject, Count(**{name: event.value[name] for name in ("channel", "views", "at")}))


def job(source: Any, *, handler: Handler | None = None, on_error: Any = "fail", **sinks: Any) -> Job:
    return Job("counting", handler or Counting(), {"in": source}, sinks, on_error=on_error)


def written(sink: KafkaSink, *rows: dict[str, Any]) -> None:
    """Let a job write rows."""
    run(job(MemorySource([KafkaRecord(row) for row in rows]), counts=sink), engine="embedded")


def serialized(registry: str, topic: str, row: dict[str, Any], schema: Any = SCHEMA) -> bytes:
    """What another program would write."""
    serialize = AvroSerializer(client(registry), json.dumps(schema))
    data = serialize(row, SerializationContext(topic, MessageField.VALUE))
    assert data is not None
    return data


def deserialized(registry: str, data: bytes | None) -> Any:
    return AvroDeserializer(client(registry))(data)


@pytest.fixture
def topic(kafka: str, schema_registry: str) -> str:
    return make_topic(kafka)


def test_avro_records_are_decoded_and_values_are_encoded(kafka: str, schema_registry: str, topic: str) -> None:
    out, avro = make_topic(kafka), {"schema_registry": schema_registry}
    fill(kafka, topic, [serialized(schema_registry, topic, ROW)])
    source = KafkaSource(topic, kafka, value_format=AvroFormat(), **avro)
    sink = KafkaSink(out, kafka, key="channel", value_format=AvroFormat(SCHEMA), **avro)
    run(job(source, counts=sink), engine="embedded")
    [message] = contents(kafka, out)
    assert (message.key(), deserialized(schema_registry, message.value())) == (b"news", ROW)


def test_the_key_of_a_record_has_a_schema_of_its_own(kafka: str, schema_registry: str, topic: str) -> None:
    formats = {"value_format": AvroFormat(SCHEMA), "key_format": AvroFormat({"type": "string"})}
    sink = KafkaSink(topic, kafka, key="channel", schema_registry=schema_registry, **formats)
    written(sink, ROW)
    [message] = contents(kafka, topic)
    assert deserialized(schema_registry, message.key()) == "news"
    known = client(schema_registry)
    assert known.get_latest_version(f"{topic}-key").schema.schema_str == '{"type":"string"}'
    source = KafkaSource(topic, kafka, schema_registry=schema_registry, **formats)
    assert source.decode is not None
    [found] = map(source.decode, source.records())
    assert (found.key, found.value) == ("news", ROW)


def test_a_decoded_record_has_its_topic_and_offset_and_a_tombstone_has_no_value(
    kafka: str, schema_registry: str, topic: str
) -> None:
    data = serialized(schema_registry, topic, ROW)
    fill(kafka, topic, [{"value": data, "key": b"k", "headers": [("trace", b"7")]}, {"value": None, "key": b"k"}])
    source = KafkaSource(topic, kafka, value_format=AvroFormat(), schema_registry=schema_registry)
    assert source.decode is not None
    full, tombstone = map(source.decode, source.records())
    assert (full.value, full.key, full.headers, full.offset) == (ROW, b"k", (("trace", b"7"),), 0)
    assert (tombstone.value, tombstone.offset) == (None, 1)


class Whole(Handler):
    """Keeps decoded records as events."""

    passed = SinkSpec(KafkaRecord)

    def key_event(self, record: KafkaRecord[Any]) -> KeyedEvent[Any]:
        return KeyedEvent("all", TIME, record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.passed.collect(subject, event.value)


def test_a_whole_decoded_record_may_be_the_value_of_an_event(kafka: str, schema_registry: str, topic: str) -> None:
    fill(kafka, topic, [serialized(schema_registry, topic, ROW)])
    passed = MemorySink()
    source = KafkaSource(topic, kafka, value_format=AvroFormat(type=Count), schema_registry=schema_registry)
    run(job(source, handler=Whole(), passed=passed), engine="embedded")
    assert [record.value for record in passed.records] == [Count(**ROW)]


def decoded(source: KafkaSource) -> list[Any]:
    assert source.decode is not None
    return [source.decode(record).value for record in source.records()]


def test_a_reader_schema_fills_in_new_fields_and_drops_old_ones(kafka: str, schema_registry: str, topic: str) -> None:
    fill(kafka, topic, [serialized(schema_registry, topic, ROW)])
    fill(kafka, topic, [serialized(schema_registry, topic, {**ROW, "note": "x"}, record(*VIEWS, NOTE))])
    source = {"value_format": AvroFormat(record(VIEWS[0], NOTE)), "schema_registry": schema_registry}
    rows = decoded(KafkaSource(topic, kafka, **source))
    assert rows == [{"channel": "news", "note": None}, {"channel": "news", "note": "x"}]
    source["value_format"] = AvroFormat(type=Count)  # a class without the new field
    assert decoded(KafkaSource(topic, kafka, **source)) == [Count(**ROW)] * 2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"garbage", "it does not begin with a zero byte and a schema id"),
        (b"", "it does not begin with a zero byte and a schema id"),
        (b"\0\0\0", "it does not begin with a zero byte and a schema id"),
        (b"\0\xff\xff\xff\xffabc", "the registry has no schema with the id 4294967295"),
        ("truncated", ""),
    ],
)
def test_what_is_not_avro_becomes_a_dead_letter(
    kafka: str, schema_registry: str, topic: str, data: Any, why: str
) -> None:
    good = serialized(schema_registry, topic, ROW)
    raw = good[:-4] if data == "truncated" else data
    fill(kafka, topic, [raw, good])
    source = KafkaSource(topic, kafka, value_format=AvroFormat(), schema_registry=schema_registry)
    failed, counts = MemorySink(), MemorySink()
    run(job(source, on_error="dead_letter", counts=counts, dead_letters=failed), engine="embedded")
    [letter] = failed.records
    assert (letter.callback, letter.record.value) == ("key_event", raw)
    assert f"KafkaSource('{topic}'): the value " in letter.error
    assert "is not Avro: write it with Confluent's Avro serializer" in letter.error
    assert re.search(why, letter.error)
    assert counts.records == [Count(**ROW)]


def test_the_error_of_a_record_that_does_not_fit_the_class_of_its_source_names_the_field(
    kafka: str, schema_registry: str, topic: str
) -> None:
    fill(kafka, topic, [serialized(schema_registry, topic, {"channel": "news"}, record(VIEWS[0]))])
    source = KafkaSource(topic, kafka, value_format=AvroFormat(type=Count), schema_registry=schema_registry)
    with pytest.raises(CallbackError, match="'views' is missing"):
        run(job(source, counts=MemorySink()), engine="embedded")


class Wrong(Counting):
    """Collects what the schema does not have."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.counts.collect(subject, Count("news", event.value["views"], TIME))


@pytest.mark.parametrize(
    ("kind", "views", "why"),
    [
        ("long", 2**70, r"amadou\.tests\.Count\.views is <1180591620717411303424> .* expected long"),
        ("string", 3, "must be string on field views"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_names_the_field(
    kafka: str, schema_registry: str, topic: str, kind: str, views: int, why: str
) -> None:
    fields = [VIEWS[0], {"name": "views", "type": kind}, VIEWS[2]]
    sink = KafkaSink(topic, kafka, value_format=AvroFormat(record(*fields)), schema_registry=schema_registry)
    source = MemorySource([KafkaRecord({**ROW, "views": views})])
    with pytest.raises(CallbackError, match=f"it does not fit the Avro schema: {why}"):
        run(job(source, handler=Wrong(), counts=sink), engine="embedded")


def test_a_dict_with_a_field_that_the_schema_does_not_have_is_an_error() -> None:
    sink = KafkaSink("t", "localhost:9", value_format=AvroFormat(SCHEMA), schema_registry="mock://fields")
    with pytest.raises(AmadouError, match="more fields than the schema specifies: note"):
        sink.codec(dict).encode({**ROW, "note": "x"})


class AsJson(Counting):
    """Has a codec of its own."""

    counts = SinkSpec(Count, codec="json")


def test_a_format_and_a_codec_of_the_port_exclude_each_other(kafka: str, schema_registry: str, topic: str) -> None:
    sink = KafkaSink(topic, kafka, value_format=AvroFormat(SCHEMA), schema_registry=schema_registry)
    with pytest.raises(SinkError, match=r"value_format= conflicts with the codec of port 'counts': remove one"):
        run(job(MemorySource([KafkaRecord(ROW)]), handler=AsJson(), counts=sink), engine="embedded")


def test_a_schema_that_was_deleted_between_two_runs_is_an_error(kafka: str, schema_registry: str, topic: str) -> None:
    known, subject = client(schema_registry), f"{topic}-value"
    known.register_schema(subject, Schema(json.dumps(SCHEMA), "AVRO"))
    sink = KafkaSink(
        topic, kafka, value_format=AvroFormat(SCHEMA, auto_register=False), schema_registry=schema_registry
    )
    written(sink, ROW)
    known.delete_subject(subject)
    with pytest.raises(SinkError, match=f"for subject '{subject}': register the schema"):
        written(sink, ROW)


@frozen
class Parted:
    channel: str | int
    part: int


def test_a_key_that_does_not_fit_its_schema_is_an_error(schema_registry: str) -> None:
    sink = KafkaSink("t", "localhost:9", key="channel", key_format=AvroFormat("int"), schema_registry="mock://keys")
    with pytest.raises(AmadouError, match=r"schema= is not an Avro schema"):
        sink.codec(Parted)
    sink = KafkaSink("t", "localhost:9", key="channel", key_format=AvroFormat('"int"'), schema_registry="mock://keys")
    with pytest.raises(AmadouError, match="its key does not fit the Avro schema"):
        sink.codec(Parted).encode(Parted("news", 1))


def set_compatibility(registry: str, subject: str, level: str) -> None:
    client(registry).set_compatibility(subject, level)


def test_a_schema_that_is_incompatible_with_its_subject_is_an_error_before_the_run(
    kafka: str, schema_registry: str, topic: str
) -> None:
    settings = {"schema_registry": schema_registry}
    KafkaSink(topic, kafka, value_format=AvroFormat(SCHEMA), **settings).check("counts", Count)
    set_compatibility(schema_registry, f"{topic}-value", "BACKWARD")
    KafkaSink(topic, kafka, value_format=AvroFormat(record(*VIEWS, NOTE)), **settings).check("counts", dict)
    incompatible = record(*VIEWS, {"name": "more", "type": "int"})
    with pytest.raises(SinkError, match=rf"incompatible with earlier schemas of subject '{topic}-value': change"):
        written(KafkaSink(topic, kafka, value_format=AvroFormat(incompatible), **settings))


def test_a_schema_must_be_registered_if_the_sink_does_not_register_it(
    kafka: str, schema_registry: str, topic: str
) -> None:
    sink = KafkaSink(
        topic, kafka, value_format=AvroFormat(SCHEMA, auto_register=False), schema_registry=schema_registry
    )
    with pytest.raises(SinkError, match=rf"for subject '{topic}-value': register the schema, or set auto_"):
        sink.check("counts", Count)
    client(schema_registry).register_schema(f"{topic}-value", Schema(json.dumps(SCHEMA), "AVRO"))
    sink.check("counts", Count)
    written(sink, ROW)
    assert deserialized(schema_registry, contents(kafka, topic)[0].value()) == ROW


def test_without_a_schema_the_subject_s_latest_one_is_used(kafka: str, schema_registry: str, topic: str) -> None:
    sink = KafkaSink(topic, kafka, value_format=AvroFormat(), schema_registry=schema_registry)
    with pytest.raises(SinkError, match=rf"has no subject '{topic}-value': register a schema for the subject, or set"):
        sink.check("counts", Count)
    known = client(schema_registry)
    known.register_schema(f"{topic}-value", Schema(json.dumps(SCHEMA), "AVRO"))
    latest = known.register_schema(f"{topic}-value", Schema(json.dumps(record(*VIEWS, NOTE)), "AVRO"))
    written(sink, ROW)
    [message] = contents(kafka, topic)
    data = message.value()
    assert data is not None
    assert int.from_bytes(data[1:5]) == latest
    assert deserialized(schema_registry, data) == {**ROW, "note": None}


def test_a_schema_may_refer_to_another_one(kafka: str, schema_registry: str, topic: str) -> None:
    known, place = client(schema_registry), f"Place{uuid4().hex}"
    schema = Schema(json.dumps(record({"name": "city", "type": "string"}, name=place)), "AVRO")
    known.register_schema(f"{topic}-place", schema)
    name = f"amadou.tests.{place}"
    visit = json.dumps(record(*VIEWS, {"name": "place", "type": name}))
    references = [SchemaReference(name, f"{topic}-place", 1)]
    known.register_schema(f"{topic}-value", Schema(visit, "AVRO", references))
    settings: Any = {"value_format": AvroFormat(), "schema_registry": schema_registry}
    sink, row = KafkaSink(topic, kafka, **settings), {**ROW, "place": {"city": "Kiel"}}
    sink.check("visits", dict)
    fill(kafka, topic, [sink.codec(dict).encode(row)[1]])
    assert decoded(KafkaSource(topic, kafka, **settings)) == [row]


@pytest.mark.parametrize(("strategy", "subject"), [("record", "{name}"), ("topic_record", "{topic}-{name}")])
def test_subjects_may_be_named_after_the_record(
    kafka: str, schema_registry: str, topic: str, strategy: str, subject: str
) -> None:
    name = f"Count{uuid4().hex}"
    form = AvroFormat(record(*VIEWS, name=name), subject_name_strategy=strategy)
    KafkaSink(topic, kafka, value_format=form, schema_registry=schema_registry).check("counts", Count)
    subjects = client(schema_registry).get_subjects()
    assert subject.format(topic=topic, name=f"amadou.tests.{name}") in subjects
    nameless = AvroFormat(subject_name_strategy=strategy)
    sink = KafkaSink(topic, kafka, value_format=nameless, schema_registry=schema_registry)
    with pytest.raises(SinkError, match=f"subject_name_strategy='{strategy}' needs the name of a record: set schema="):
        sink.check("counts", Count)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (VIEWS[:2], "the schema has no field at"),
        ([*VIEWS, {"name": "more", "type": "int"}], "Count has no field more"),
    ],
)
def test_a_class_whose_fields_are_not_those_of_the_schema_is_an_error_before_the_run(
    kafka: str, schema_registry: str, topic: str, fields: Any, problem: str
) -> None:
    sink = KafkaSink(topic, kafka, value_format=AvroFormat(record(*fields)), schema_registry=schema_registry)
    with pytest.raises(SinkError, match=rf"does not fit the Avro schema Count of topic .*: {problem}: change"):
        sink.check("counts", Count)


def test_avro_is_written_exactly_once(kafka: str, schema_registry: str, topic: str) -> None:
    sink = KafkaSink(
        topic, kafka, exactly_once=True, key="channel", value_format=AvroFormat(SCHEMA), schema_registry=schema_registry
    )
    written(sink, ROW, {**ROW, "views": 4})
    found = committed(kafka, topic)
    assert [deserialized(schema_registry, each.value())["views"] for each in found] == [3, 4]
    assert [each.key() for each in found] == [b"news"] * 2


def test_protobuf_messages_are_read_and_written(kafka: str, schema_registry: str, topic: str) -> None:
    out, settings = make_topic(kafka), {"value_format": ProtobufFormat(ViewCount), "schema_registry": schema_registry}
    written(KafkaSink(topic, kafka, **settings), ROW)
    [message] = contents(kafka, topic)
    expected = ViewCount(channel="news", views=3, at=TIME)
    assert ProtobufDeserializer(ViewCount, {"use.deprecated.format": False})(message.value()) == expected
    source, sink = KafkaSource(topic, kafka, **settings), KafkaSink(out, kafka, key="channel", **settings)
    assert decoded(source) == [expected]
    run(job(source, handler=Messages(), messages=sink), engine="embedded")
    [copied] = contents(kafka, out)
    assert (copied.key(), copied.value()) == (b"news", message.value())


class Messages(Handler):
    """Collects messages."""

    messages = SinkSpec(object)

    def key_event(self, record: KafkaRecord[Any]) -> KeyedEvent[int]:
        return KeyedEvent(record.value.channel, record.value.at.ToDatetime(timezone.utc), record.value.views)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.messages.collect(subject, ViewCount(channel=subject.key, views=event.value, at=event.timestamp))


def test_protobuf_may_use_the_latest_schema_of_its_subject(kafka: str, schema_registry: str, topic: str) -> None:
    settings = {"schema_registry": schema_registry}
    latest = KafkaSink(topic, kafka, value_format=ProtobufFormat(ViewCount, use_latest=True), **settings)
    with pytest.raises(SinkError, match=rf"has no subject '{topic}-value': register a schema for the subject, or omit"):
        latest.check("counts", Count)
    KafkaSink(topic, kafka, value_format=ProtobufFormat(ViewCount), **settings).check("counts", Count)
    other = KafkaSink(topic, kafka, value_format=ProtobufFormat(Timestamp, use_latest=True), **settings)
    with pytest.raises(SinkError, match=rf"the latest schema of subject '{topic}-value' has no message Timestamp: reg"):
        other.check("counts", object)
    written(latest, ROW)
    source = KafkaSource(topic, kafka, value_format=ProtobufFormat(ViewCount), **settings)
    assert [message.channel for message in decoded(source)] == ["news"]


@pytest.mark.parametrize(
    ("value", "why"),
    [({"chanel": "news"}, 'has no "chanel" field'), ({"views": "3"}, "views"), ("news", "str is not a ViewCount")],
)
def test_the_error_of_a_value_that_is_not_a_protobuf_message_says_why(value: Any, why: str) -> None:
    sink = KafkaSink("t", "localhost:9", value_format=ProtobufFormat(ViewCount), schema_registry="mock://messages")
    with pytest.raises(AmadouError, match="it does not fit the Protobuf schema: .*" + why):
        sink.codec(object).encode(value)


class Login(BaseHTTPRequestHandler):
    """Demands a login in front of the registry."""

    registry = ""

    def do_GET(self) -> None:
        login = "Basic " + base64.b64encode(b"amadou:secret").decode()
        if self.headers["Authorization"] != login:
            self.send_error(401)
            return
        with urlopen(Request(self.registry + self.path)) as answer:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.read())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry_with_login(schema_registry: str) -> Iterator[str]:
    handler = type("Handler", (Login,), {"registry": schema_registry})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_login_that_the_registry_rejects_is_an_error(kafka: str, topic: str, registry_with_login: str) -> None:
    settings = {"value_format": AvroFormat(), "schema_registry": registry_with_login}
    login = {"basic.auth.user.info": Secret("amadou:secret")}
    KafkaSource(topic, kafka, schema_registry_options=login, **settings).check()
    login = {"basic.auth.user.info": Secret("amadou:wrong")}
    with pytest.raises(SourceError, match=r'refuses the login: check "basic\.auth\.user\.info"') as refused:
        KafkaSource(topic, kafka, schema_registry_options=login, **settings).check()
    assert "amadou:wrong" not in str(refused.value)


def test_a_registry_that_does_not_answer_is_an_error_after_its_timeout(kafka: str, topic: str) -> None:
    quick = {"timeout": 0.2, "max.retries": 0}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings = {"schema_registry": url, "schema_registry_options": quick}
        with pytest.raises(SourceError, match=rf"registry at {url} did not answer: check that it is running"):
            KafkaSource(topic, kafka, value_format=AvroFormat(), **settings).check()
        with pytest.raises(SinkError, match=rf"registry at {url} did not answer: check that it is running"):
            KafkaSink(topic, kafka, value_format=AvroFormat(SCHEMA), **settings).check("counts", Count)


def test_an_outage_of_the_registry_ends_the_run_instead_of_making_dead_letters(
    kafka: str, schema_registry: str, topic: str
) -> None:
    fill(kafka, topic, [serialized(schema_registry, topic, ROW)])
    quick = {"timeout": 0.2, "max.retries": 0}
    source = KafkaSource(
        topic, kafka, value_format=AvroFormat(), schema_registry="http://127.0.0.1:9", schema_registry_options=quick
    )
    with pytest.raises(SourceError, match="did not answer"):
        list(source.records())


def test_a_reader_schema_that_is_not_avro_is_an_error_before_the_run(
    kafka: str, schema_registry: str, topic: str
) -> None:
    source = KafkaSource(topic, kafka, value_format=AvroFormat("{"), schema_registry=schema_registry)
    with pytest.raises(SourceError, match="schema= is not an Avro schema: correct it"):
        source.check()


def test_avro_may_be_named_on_the_command_line() -> None:
    source = KafkaSource("t", "localhost:9", value_format="avro", schema_registry="http://localhost:9")
    assert source.value_format == AvroFormat()
    with pytest.raises(AmadouError, match="'xml' is not a format: use an AvroFormat, a ProtobufFormat or \"avro\""):
        KafkaSource("t", "localhost:9", value_format="xml", schema_registry="http://localhost:9")


@pytest.mark.parametrize("url", ["http://amadou:secret@localhost:9", Secret("http://localhost:9")])
def test_the_address_of_a_schema_registry_has_no_secret(url: Any) -> None:
    with pytest.raises(
        SourceError, match=r'pass the login as schema_registry_options=\{"basic.auth.user.info": Secret'
    ):
        KafkaSource("t", "localhost:9", value_format="avro", schema_registry=url)


def test_an_unusable_setting_is_an_error() -> None:
    with pytest.raises(SinkError, match="key_format and value_format need a schema registry: set schema_registry="):
        KafkaSink("t", "localhost:9", value_format=AvroFormat(SCHEMA))
    with pytest.raises(SinkError, match="set key="):
        KafkaSink("t", "localhost:9", key_format=AvroFormat(SCHEMA), schema_registry="http://localhost:9")
    login: Any = {"basic.auth.user.info": "amadou:secret"}
    with pytest.raises(SourceError, match="must be a Secret"):
        KafkaSource("t", "localhost:9", schema_registry_options=login)
    with pytest.raises(SourceError, match="contains a password"):
        KafkaSource("t", "localhost:9", value_format=AvroFormat(), schema_registry="http://amadou:secret@localhost:9")
    settings: Any = {"schema_registry": "http://x", "schema_registry_options": {"such.option": 7}}
    sink = KafkaSink("t", "localhost:9", value_format=AvroFormat(), **settings)
    with pytest.raises(SinkError, match=r"fix schema_registry= or schema_registry_options= \(.*such\.option"):
        sink.codec(Count)


def test_a_test_run_needs_neither_kafka_nor_a_registry() -> None:
    login = {"basic.auth.user.info": Param("LOGIN", secret=True)}
    registry: Any = {"schema_registry": Param("REGISTRY"), "schema_registry_options": login}
    settings: Any = {"value_format": AvroFormat(SCHEMA), **registry}
    counting = job(
        KafkaSource("views", "localhost:9", **settings),
        counts=KafkaSink("counts", "localhost:9", key="channel", **settings),
    )
    test = TestRun(counting)
    test.add_record(KafkaRecord(ROW, timestamp=TIME))
    assert test.run().records("counts") == [Count(**ROW)]


def test_connectors_with_formats_can_be_pickled() -> None:
    settings: Any = {"schema_registry": "http://localhost:9", "key_format": AvroFormat('"string"')}
    source = KafkaSource("t", "localhost:9", value_format=AvroFormat(SCHEMA, type=Count), **settings)
    assert pickle.loads(pickle.dumps(source)) == source
    assert pickle.loads(pickle.dumps(source.decode)) == source.decode
    sink = KafkaSink("t", "localhost:9", key="channel", value_format=ProtobufFormat(ViewCount), **settings)
    assert pickle.loads(pickle.dumps(sink)) == sink


@pytest.mark.qualify  # other tests read and write both formats, and pickle them as Spark does
@pytest.mark.spark
def test_avro_is_read_and_protobuf_is_written_on_spark(
    kafka: str, schema_registry: str, topic: str, spark: Any, tmp_path: Any
) -> None:
    out, settings = make_topic(kafka), {"schema_registry": schema_registry}
    fill(kafka, topic, [serialized(schema_registry, topic, {**ROW, "views": views}) for views in (3, 4)] + [b"garbage"])
    failed = MemorySink()
    counting = job(
        KafkaSource(topic, kafka, value_format=AvroFormat(), **settings),
        on_error="dead_letter",
        counts=KafkaSink(out, kafka, key="channel", value_format=ProtobufFormat(ViewCount), **settings),
        dead_letters=failed,
    )
    run(counting, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
    found = [ProtobufDeserializer(ViewCount, {})(message.value()) for message in contents(kafka, out)]
    assert [message.views for message in found] == [3, 4]
    assert [letter.record.value for letter in failed.records] == [b"garbage"]
