import ctypes
import json
import logging
import pickle
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import confluent_kafka
import pytest
from attrs import frozen
from confluent_kafka import KafkaError, Producer
from tests.services import KafkaLogin, OwnService, need, own_service
from tests.topics import PATIENCE, committed, contents, delete, delete_records, fill, make_topic
from tests.waits import wait_for

from amadou import Handler, Job, KeyedEvent, LateEvent, MemorySink, MemorySource, Param, Secret, SinkSpec, Subject
from amadou.errors import CallbackError, SinkError, SourceError
from amadou.plugins import PartitionOffset, SinkBatch
from amadou_plugins.connectors import KafkaHeadersError, KafkaRecord, KafkaSink, KafkaSource, KafkaTimestampError
from amadou_plugins.connectors.kafka import client, transactions
from amadou_plugins.connectors.kafka.client import Patience
from amadou_plugins.connectors.kafka.offsets import LATEST, Range, furthest_behind, limited, shares
from amadou_plugins.connectors.kafka.planned_offsets import Planned
from amadou_plugins.connectors.kafka.transactions import Part
from amadou_runtime import TestRun, run
from amadou_runtime.jobs.ports import port_codec

TIME = datetime(2025, 1, 1, 0, 0, 0, 250_000, tzinfo=timezone.utc)


class Passing(Handler):
    """Passes the records of topics on."""

    passed = SinkSpec(tuple[str, int, int, bytes | None, bytes | None, list[Any], datetime])

    def key_event(self, record: KafkaRecord) -> KeyedEvent[Any]:
        known = (
            *(record.topic, record.partition, record.offset, record.key, record.value),
            *(list(record.headers), record.timestamp),
        )
        return KeyedEvent(f"{record.topic}-{record.partition}", TIME, known)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        *others, headers, at = event.value
        self.passed.collect(subject, (*others, [tuple(header) for header in headers], at))


def delivered(source: KafkaSource, **options: Any) -> list[Any]:
    """What a job gets from a source, in its order."""
    sink = MemorySink()
    run(Job("passing", Passing(), {"in": source}, {"passed": sink}), engine="embedded", **options)
    return sink.records


def values(source: KafkaSource) -> list[Any]:
    return [record[4] for record in delivered(source)]


def test_a_kafka_record_has_its_topic_offset_key_headers_and_timestamp(kafka: str) -> None:
    topic = make_topic(kafka, 2)
    millis = int(TIME.timestamp() * 1000)
    headers = [("trace", b"7"), ("trace", b"8"), ("empty", None)]
    full = {"value": b"v", "key": b"k", "partition": 1, "timestamp": millis, "headers": headers}
    fill(kafka, topic, [full, {"value": None, "partition": 1, "timestamp": millis}])
    assert delivered(KafkaSource(topic, kafka)) == [
        (topic, 1, 0, b"k", b"v", headers, TIME),
        (topic, 1, 1, None, None, [], TIME),
    ]


class Refusing(Handler):
    """Takes whole records, and fails at each."""

    def key_event(self, record: KafkaRecord) -> KeyedEvent[KafkaRecord]:
        return KeyedEvent("all", TIME, record)

    def on_event(self, subject: Subject, event: KeyedEvent[KafkaRecord]) -> None:
        raise ValueError(event.value)


def test_a_dead_letter_has_the_whole_kafka_record_if_it_is_the_value_of_an_event(kafka: str) -> None:
    topic = make_topic(kafka)
    fill(kafka, topic, [{"value": b"v", "headers": [("trace", b"7"), ("empty", None)]}])
    dead_letters = MemorySink()
    source = KafkaSource(topic, kafka)
    run(
        Job("refusing", Refusing(), {"in": source}, {"dead_letters": dead_letters}, on_error="dead_letter"),
        engine="embedded",
    )
    [letter] = dead_letters.records
    assert (letter.record.value.value, letter.record.value.headers) == (b"v", (("trace", b"7"), ("empty", None)))


def test_each_record_of_several_topics_is_read_once_in_the_order_of_its_partition(kafka: str) -> None:
    topics = [make_topic(kafka, 3), make_topic(kafka)]
    for topic, partitions in zip(topics, (3, 1), strict=True):
        fill(kafka, topic, ({"value": b"%d" % number, "partition": number % partitions} for number in range(2_500)))
    found = delivered(KafkaSource(topics, kafka))
    assert len(found) == 5_000
    by_partition: dict[Any, list[int]] = {}
    for topic, partition, offset, *_ in found:
        by_partition.setdefault((topic, partition), []).append(offset)
    assert len(by_partition) == 4
    assert all(offsets == list(range(len(offsets))) for offsets in by_partition.values())
    assert {int(value) for *_, value, _, _ in found} == set(range(2_500))


def test_topics_are_a_list_with_commas_or_a_pattern(kafka: str) -> None:
    one, other = make_topic(kafka), make_topic(kafka)
    fill(kafka, one, [b"1"])
    fill(kafka, other, [b"2"])
    assert sorted(values(KafkaSource(f"{one}, {other}", kafka))) == [b"1", b"2"]
    assert sorted(values(KafkaSource(f"^{one[:-1]}.$,{other}", kafka))) == [b"1", b"2"]
    assert values(KafkaSource("^none-of-the-topics", kafka)) == []


def test_reading_may_start_at_a_time(kafka: str) -> None:
    topic = make_topic(kafka, 2)
    for second in range(4):
        at = int((TIME + timedelta(seconds=second)).timestamp() * 1000)
        fill(kafka, topic, [{"value": b"%d" % second, "partition": 0, "timestamp": at}])
    start = TIME + timedelta(seconds=2)
    assert values(KafkaSource(topic, kafka, start=start)) == [b"2", b"3"]
    assert values(KafkaSource(topic, kafka, start=start.isoformat())) == [b"2", b"3"]
    assert values(KafkaSource(topic, kafka, start="2025-01-01T00:00:09Z")) == []
    assert values(KafkaSource(topic, kafka, start="latest")) == []


@pytest.mark.parametrize("start", ["soon", "2025-01-01T00:00:00", datetime(2025, 1, 1), 7])
def test_a_start_that_is_not_a_time_or_a_word_is_an_error(start: Any) -> None:
    with pytest.raises(SourceError, match=r'start must be "earliest", "latest" or a time with a time zone'):
        KafkaSource("t", "localhost:9092", start=start)


def test_records_of_a_transaction_are_read_when_it_is_committed(kafka: str) -> None:
    topic = make_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"of-{topic}"})
    producer.init_transactions(30)
    for value, commits in ((b"1", True), (b"aborted", False), (b"2", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(30)
    assert values(KafkaSource(topic, kafka)) == [b"1", b"2"]
    producer.commit_transaction(30)
    assert values(KafkaSource(topic, kafka)) == [b"1", b"2", b"open"]


def test_records_that_were_deleted_before_they_were_read_stop_the_run(kafka: str) -> None:
    topic = make_topic(kafka)
    fill(kafka, topic, [b"0", b"1", b"2"])
    delete_records(kafka, topic, 2)
    source = KafkaSource(topic, kafka)
    with pytest.raises(SourceError, match=r"from offset 0 on, were deleted .* skip_lost=True"):
        list(source._read(Range(topic, 0, 0, 3)))
    skipping = KafkaSource(topic, kafka, skip_lost=True)
    assert [record.value for record in skipping._read(Range(topic, 0, 0, 3))] == [b"2"]
    assert values(source) == [b"2"]


def test_a_topic_that_does_not_exist_is_named(kafka: str) -> None:
    topic = make_topic(kafka)
    with pytest.raises(SourceError, match=r"has no topic no-such-topic: create the topic"):
        KafkaSource(f"{topic},no-such-topic", kafka).check()
    with pytest.raises(SinkError, match=r"has no topic no-such-topic: create the topic"):
        KafkaSink("no-such-topic", kafka).check("sums", dict)


@pytest.fixture
def short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets single requests wait less long for an answer, and outages be logged sooner."""
    monkeypatch.setattr(client, "ANSWER_WITHIN", 0.5)
    monkeypatch.setattr(client, "_QUIET", 0.5)


@pytest.mark.usefixtures("short_requests")
def test_a_cluster_that_does_not_answer_is_an_error_after_the_time_to_give_up() -> None:
    source = KafkaSource("t", "127.0.0.1:9", give_up_after=timedelta(seconds=0.7))
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9 did not answer for 0\.7 s"):
        source.check()


@pytest.mark.usefixtures("short_requests")
def test_a_login_that_kafka_refuses_is_an_error_at_once(kafka_sasl: KafkaLogin) -> None:
    topic = make_topic_over(kafka_sasl)
    good = {"username": kafka_sasl.user, "password": Secret(kafka_sasl.password)}
    KafkaSource(topic, kafka_sasl.address, **good).check()
    KafkaSink(topic, kafka_sasl.address, **good).check("sums", dict)
    wrong = {**good, "password": Secret("not-the-password-of-kafka")}
    source, sink = (connector(topic, kafka_sasl.address, **wrong) for connector in (KafkaSource, KafkaSink))
    with pytest.raises(SourceError, match=f"refuses the login of '{kafka_sasl.user}'") as caught:
        source.check()
    assert "not-the-password-of-kafka" not in repr(caught.value) + repr(source)
    with pytest.raises(SinkError, match="refuses the login"):
        sink.check("sums", dict)


@pytest.mark.parametrize(("connector", "error"), [(KafkaSource, SourceError), (KafkaSink, SinkError)])
@pytest.mark.parametrize("limit", [60, timedelta(0), None])
def test_give_up_after_must_be_a_positive_timedelta(connector: Any, error: type[Exception], limit: Any) -> None:
    with pytest.raises(error, match="give_up_after must be a positive timedelta, not"):
        connector("t", "localhost:9092", give_up_after=limit)


@pytest.mark.parametrize("topics", [None, [], [Param("TOPIC")], 7])
def test_topics_that_are_not_names_are_an_error(topics: Any) -> None:
    with pytest.raises(SourceError, match="topics must be one or more topic names, not"):
        KafkaSource(topics, "localhost:9092")


@pytest.mark.parametrize("name", ["localhost:9092", "", "a b", "ä", "x" * 250])
def test_a_name_that_no_topic_can_have_is_an_error(name: str) -> None:
    with pytest.raises(SourceError, match="cannot be the name of a topic"):
        KafkaSource(name, "topic")
    with pytest.raises(SinkError, match="the first argument is the topic"):
        KafkaSink(name, "topic")


def test_a_timestamp_beyond_the_year_9999_is_an_error_when_it_is_read(kafka: str) -> None:
    topic = make_topic(kafka, message_timestamp_after_max_ms=str(2**63 - 1))
    fill(kafka, topic, [{"value": b"micros", "timestamp": int(TIME.timestamp() * 1_000_000)}])
    (record,) = KafkaSource(topic, kafka).records()
    assert record.value == b"micros"
    with pytest.raises(
        KafkaTimestampError, match="has the timestamp 1735689600250000 ms, which is after the year 9999"
    ):
        record.timestamp  # noqa: B018


def test_headers_with_a_name_that_is_not_utf8_are_an_error_when_they_are_read(kafka: str) -> None:
    topic, others = make_topic(kafka), [{"value": b"other", "headers": [("name", b"x")]}] * 20
    fill(kafka, topic, others)
    fill_with_header(kafka, topic, b"\xff\xfe", b"odd")
    fill(kafka, topic, others)
    records = list(KafkaSource(topic, kafka).records())
    odd = records.pop(20)
    assert ({record.headers for record in records}, odd.value) == ({(("name", b"x"),)}, b"odd")
    with pytest.raises(KafkaHeadersError, match=f"offset 20 in partition 0 of topic '{topic}' has a header whose name"):
        odd.headers  # noqa: B018


def fill_with_header(kafka: str, topic: str, name: bytes, value: bytes) -> None:
    """Write a record with a header whose name need not be text, which confluent-kafka does not allow."""
    (path,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    lib, error = ctypes.CDLL(str(path)), ctypes.create_string_buffer(512)
    for function in (lib.rd_kafka_conf_new, lib.rd_kafka_new, lib.rd_kafka_headers_new):
        function.restype = ctypes.c_void_p
    conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
    assert lib.rd_kafka_conf_set(conf, b"bootstrap.servers", kafka.encode(), error, 512) == 0, error.value
    producer = ctypes.c_void_p(lib.rd_kafka_new(0, conf, error, 512))
    headers = ctypes.c_void_p(lib.rd_kafka_headers_new(ctypes.c_size_t(1)))
    lib.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"x", ctypes.c_ssize_t(1))
    with_topic = (ctypes.c_int(1), topic.encode())  # the numbers are those of rd_kafka_vtype_t
    with_value = (ctypes.c_int(4), value, ctypes.c_size_t(len(value)))
    copied, with_headers = (ctypes.c_int(7), ctypes.c_int(2)), (ctypes.c_int(10), headers)
    assert not lib.rd_kafka_producev(producer, *with_topic, *with_value, *copied, *with_headers, ctypes.c_int(0))
    assert lib.rd_kafka_flush(producer, 60_000) == 0
    lib.rd_kafka_destroy(producer)


def test_a_handler_that_reads_a_missing_timestamp_of_a_record_fails() -> None:
    job = Job("passing", Passing(), {"in": KafkaSource("t", "localhost:9092")}, {"passed": MemorySink()})
    record = KafkaRecord(b"v", b"k", topic="views", partition=1, offset=7)
    with pytest.raises(CallbackError) as raised:
        TestRun(job).add_record(record).run()
    error = raised.value.__cause__
    assert isinstance(error, KafkaTimestampError)
    assert (error.topic, error.partition, error.offset, error.millis) == ("views", 1, 7, None)
    assert str(error) == (
        "the record at offset 7 in partition 1 of topic 'views' has no timestamp: read the event's time from the "
        "record's value, or write the record with a timestamp in milliseconds since 1970"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_refusal_does_not_count_after_the_cluster_has_answered() -> None:
    patience = Patience(KafkaSource("t", "localhost:9092", username="me").cluster)
    patience.note(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    patience.ends()
    patience.waits()
    with pytest.raises(SourceError, match="denies 'me' access"):
        patience.waits(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    patience.waits()


def test_a_connector_that_gave_up_waits_again_the_next_time() -> None:
    patience = Patience(KafkaSource("t", "localhost:9092", give_up_after=timedelta(seconds=0.01)).cluster)
    patience.begins()
    time.sleep(0.02)
    with pytest.raises(SourceError, match=r"did not answer for 0\.01 s"):
        patience.waits()
    patience.waits()


@pytest.mark.parametrize(("connector", "error"), [(KafkaSource, SourceError), (KafkaSink, SinkError)])
def test_a_password_that_is_not_a_secret_is_an_error(connector: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="password must be a Secret, or a Param with secret=True"):
        connector("t", "localhost:9092", username="me", password="plain-password-of-kafka")


def make_topic_over(login: KafkaLogin) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login_settings = {"sasl.username": login.user, "sasl.password": login.password}
    admin = AdminClient({"bootstrap.servers": login.address, **settings, **login_settings})
    name = f"topic-of-{login.user}"
    topics = admin.list_topics(timeout=30).topics
    if name not in topics:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def test_options_are_passed_to_librdkafka_unchanged(kafka: str) -> None:
    topic = make_topic(kafka)
    fill(kafka, topic, [b"1"])
    assert values(KafkaSource(topic, kafka, options={"client.id": "amadou-test"})) == [b"1"]
    with pytest.raises(SourceError, match=r'No such configuration property: "no\.such\.option"'):
        KafkaSource(topic, kafka, options={"no.such.option": "1"}).check()
    hidden = KafkaSource(topic, kafka, options={"ssl.key.password": Secret("key-password-of-kafka")})
    assert "key-password-of-kafka" not in repr(hidden)


@frozen
class Sum:
    name: str
    at: datetime
    count: int


class Summing(Handler):
    sums = SinkSpec(Sum)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(record, TIME)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.sums.collect(subject, Sum(str(subject.key), event.timestamp, 1))


def written(sink: KafkaSink, records: list[Any], handler: Handler | None = None) -> None:
    """Let a job write what it collects of records."""
    run(Job("summing", handler or Summing(), {"in": MemorySource(records)}, {"sums": sink}), engine="embedded")


def test_each_value_becomes_json_with_an_id_of_its_own(kafka: str) -> None:
    topic = make_topic(kafka)
    written(KafkaSink(topic, kafka), ["a", "b", "a"])
    found = contents(kafka, topic)
    at = "2025-01-01T00:00:00.250000Z"
    assert sorted(json.loads(each.value() or b"")["name"] for each in found) == ["a", "a", "b"]
    assert json.loads(found[0].value() or b"") == {"name": "a", "at": at, "count": 1}
    assert {each.key() for each in found} == {None}
    assert len(ids(found)) == 3


def ids(found: list[Any]) -> set[bytes]:
    return {dict(each.headers())["amadou-id"] for each in found}


def test_a_reprocessed_batch_has_the_same_ids_in_any_order(kafka: str) -> None:
    topic = make_topic(kafka)
    sink = KafkaSink(topic, kafka)
    job = Job("summing", Summing(), {"in": MemorySource()}, {"sums": sink})
    codec = port_codec(job, "sums")
    encoded_values = [codec.encode(Sum(name, TIME, 1)) for name in "abbbc"]

    def write(number: int, part: str, encoded_values: list[Any]) -> set[bytes]:
        before = len(contents(kafka, topic))
        writer = sink.open(SinkBatch("run", "summing", "sums", number, codec), part)
        writer.write(encoded_values[:2])
        writer.write(encoded_values[2:])
        writer.finish()
        return ids(contents(kafka, topic)[before:])

    first = write(1, "00000", encoded_values)
    assert len(first) == 5
    assert write(1, "00000", encoded_values[::-1]) == first
    assert not write(1, "00001", encoded_values) & first
    assert not write(2, "00000", encoded_values) & first


@pytest.mark.parametrize(
    ("key", "expected"), [("name", {b"a", b"b"}), ("at", {b"2025-01-01T00:00:00.250000Z"}), ("count", {b"1"})]
)
def test_a_field_of_the_values_becomes_the_key(kafka: str, key: str, expected: set[bytes]) -> None:
    topic = make_topic(kafka)
    written(KafkaSink(topic, kafka, key=key), ["a", "b"])
    found = contents(kafka, topic)
    assert {each.key() for each in found} == expected
    assert sorted(json.loads(each.value() or b"")["name"] for each in found) == ["a", "b"]


def test_an_error_names_the_topic_of_its_sink_if_sinks_share_a_cluster(kafka: str) -> None:
    wide, narrow = make_topic(kafka), make_topic(kafka, max_message_bytes="200")
    written(KafkaSink(wide, kafka), ["a"])
    with pytest.raises(SinkError, match=f"'{narrow}'"):
        written(KafkaSink(narrow, kafka), ["a" * 1000])


class Counting(Summing):
    sums = SinkSpec(int)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.sums.collect(subject, 1)


def test_a_value_without_the_key_fails_where_it_was_collected(kafka: str) -> None:
    topic = make_topic(kafka)
    with pytest.raises(CallbackError, match="it has no field 'name' for the record's key"):
        written(KafkaSink(topic, kafka, key="name"), ["a"], Counting())


def test_a_key_that_is_not_a_field_of_the_values_is_an_error(kafka: str) -> None:
    topic = make_topic(kafka)
    with pytest.raises(SinkError, match=r"have no field 'channel': set key to one of name, at, count"):
        written(KafkaSink(topic, kafka, key="channel"), ["a"])


class Failing(Summing):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise ValueError(f"no {subject.key}")


def test_late_events_and_dead_letters_go_to_topics(kafka: str) -> None:
    failed, late = make_topic(kafka), make_topic(kafka)
    sinks = {"sums": MemorySink(), "dead_letters": KafkaSink(failed, kafka), "late_events": KafkaSink(late, kafka)}
    source = MemorySource(["a", "b"])
    run(
        Job("failing", Failing(), {"in": source}, sinks, on_error="dead_letter", late_events="divert"),
        engine="embedded",
    )
    assert [json.loads(each.value() or b"")["key"] for each in contents(kafka, failed)] == ["a", "b"]

    sink = sinks["late_events"]
    assert isinstance(sink, KafkaSink)
    codec = sink.codec(LateEvent)
    writer = sink.open(SinkBatch("run", "failing", "late_events", 1, codec), "00000")
    writer.write([codec.encode(LateEvent("failing", "in", "a", TIME, b"v", TIME))])
    writer.finish()
    (found,) = contents(kafka, late)
    assert json.loads(found.value() or b"")["key"] == "a"


class OwnBytes:
    def encode(self, value: Sum) -> bytes:
        return value.name.encode() * 2

    def decode(self, encoded: bytes) -> Any:
        return encoded


class InOwnBytes(Summing):
    sums = SinkSpec(Sum, codec=OwnBytes())


def test_the_bytes_of_a_port_s_own_codec_are_written_unchanged(kafka: str) -> None:
    topic = make_topic(kafka)
    written(KafkaSink(topic, kafka), ["a", "b"], InOwnBytes())
    assert sorted(each.value() or b"" for each in contents(kafka, topic)) == [b"aa", b"bb"]
    with pytest.raises(SinkError, match="key= conflicts with the codec of port 'sums': remove one of the two"):
        written(KafkaSink(topic, kafka, key="name"), ["a"], InOwnBytes())


def test_a_record_that_is_too_large_for_its_topic_stops_the_run(kafka: str) -> None:
    topic = make_topic(kafka, max_message_bytes="200")
    with pytest.raises(SinkError, match=r"did not accept a record: .*too large"):
        written(KafkaSink(topic, kafka), ["a" * 1000])
    written(KafkaSink(topic, kafka), ["a"])
    assert len(contents(kafka, topic)) == 1


def test_connectors_can_be_pickled_and_take_parameters(kafka: str) -> None:
    topic = make_topic(kafka)
    fill(kafka, topic, [b"1"])
    source = KafkaSource(Param("TOPIC"), Param("SERVERS"), password=Param("PASSWORD", default=None, secret=True))
    assert delivered(source, params={"TOPIC": topic, "SERVERS": kafka})[0][4] == b"1"
    sink = KafkaSink(topic, kafka)
    assert pickle.loads(pickle.dumps(sink)) == sink


def test_a_test_run_takes_records_of_topics() -> None:
    job = Job("passing", Passing(), {"in": KafkaSource("t", "localhost:9092")}, {"passed": MemorySink()})
    result = TestRun(job).add_record(KafkaRecord(b"v", b"k", timestamp=TIME)).run()
    assert result.records("passed") == [("", 0, 0, b"k", b"v", [], TIME)]


def test_a_bounded_batch_takes_a_share_of_each_partition() -> None:
    ranges = [Range("t", 0, 10, 110), Range("t", 1, 0, 10), Range("t", 2, 5, 6)]
    assert limited(ranges, 200) == ranges
    taken = limited(ranges, 50)
    assert sum(each.end - each.start for each in taken) <= 50
    assert [each.start for each in taken] == [10, 0, 5]
    assert [each.end - each.start for each in taken] == [45, 4, 1]
    assert limited(ranges, 1) == [Range("t", 0, 10, 11)]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_of_a_batch_are_even_and_have_each_record_once(count: int) -> None:
    ranges = [Range("t", 0, 10, 110), Range("t", 1, 0, 10), Range("u", 2, 5, 6)]
    cut = shares(ranges, count)
    sizes = [sum(each.end - each.start for each in part) for part in cut]
    assert sum(sizes) == 111
    assert max(sizes) - min(sizes) <= 1
    whole = [(each.topic, each.partition, at) for part in cut for each in part for at in range(each.start, each.end)]
    assert whole == [(each.topic, each.partition, at) for each in ranges for at in range(each.start, each.end)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnService]:
    """A Kafka broker of these tests' own, to stop and start."""
    need("Kafka", "AMADOU_KAFKA")
    yield from own_service("kafka", tmp_path_factory.mktemp("broker") / "kafka")


@pytest.mark.qualify
@pytest.mark.usefixtures("short_requests")
def test_sources_and_sinks_wait_for_a_broker_that_comes_back(
    broker: OwnService, caplog: pytest.LogCaptureFixture
) -> None:
    server = broker.address
    incoming, outgoing, written_directly = make_topic(server), make_topic(server), make_topic(server)
    fill(server, incoming, (b"%d" % number for number in range(1000)))
    soon = {"reconnect.backoff.max.ms": 100}
    source = KafkaSource(incoming, server, key_event=lambda record: KeyedEvent(record.value, TIME), options=soon)
    job = Job("summing", Summing(), {"in": source}, {"sums": KafkaSink(outgoing, server, options=soon)})
    offsets = KafkaSource(incoming, server, give_up_after=timedelta(seconds=60), options=soon).offsets()
    partitions = offsets.partitions()
    newest = offsets.at(LATEST, partitions)
    sink = KafkaSink(written_directly, server, options=soon)
    codec = port_codec(job, "sums")
    writer = sink.open(SinkBatch("run", "summing", "sums", 1, codec), "00000")

    def write() -> None:
        writer.write([codec.encode(Sum(str(number), TIME, number)) for number in range(1000)])
        writer.finish()

    outage = f"Kafka at {server} does not answer"
    broker.stop()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor() as threads:
        waiting = [
            threads.submit(lambda: run(job, engine="embedded")),
            threads.submit(lambda: offsets.at(LATEST, partitions)),
            threads.submit(write),
        ]
        wait_for(lambda: caplog.text.count(outage) == len(waiting) or any(each.done() for each in waiting))
        broker.start()
        results = [each.result(PATIENCE) for each in waiting]

    assert "waiting for up to 60 s" in caplog.text
    assert results[1] == newest == {(incoming, 0): 1000}
    assert len(ids(contents(server, outgoing))) == 1000
    assert len(ids(contents(server, written_directly))) == 1000
    assert caplog.text.count(f"Kafka at {server} answers again") == len(waiting)


def test_a_partition_whose_records_were_all_deleted_is_named(kafka: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = make_topic(kafka, 2)
    fill(kafka, topic, [{"value": b"1", "partition": 0}, {"value": b"2", "partition": 0}])
    delete_records(kafka, topic, 2)
    KafkaSource(topic, kafka).check()
    assert f"partition 0 of topic {topic} is empty and starts at offset 2: earlier records were deleted" in caplog.text
    assert "partition 1" not in caplog.text
    caplog.clear()
    KafkaSource(topic, kafka, start="latest").check()
    assert caplog.text == ""


def ranges_of(**sizes: int) -> list[Range]:
    return [Range(name, 0, 0, size) for name, size in sizes.items()]


def test_the_partitions_that_are_furthest_behind_are_read_first() -> None:
    ranges = ranges_of(a=10, b=10, c=10, new=10)
    newest = {"a-0": 0, "b-0": 49, "c-0": 100}
    assert [each.topic for each in furthest_behind(ranges, newest)] == ["a", "b", "new"]
    assert furthest_behind(ranges, {}) == ranges
    assert furthest_behind(ranges, {"a-0": 5, "b-0": 5, "c-0": 5, "new-0": 5}) == ranges


def test_a_plan_has_the_read_and_the_unread_offsets_of_each_partition() -> None:
    begun = Planned({("t", 0): 5, ("t", 1): 7, ("deleted", 0): 3}, fresh={("t", 0), ("t", 1), ("deleted", 0)})
    there = [Range("t", 0, 5, 25), Range("t", 1, 7, 17), Range("t", 2, 2, 4)]
    planned = begun.then(there, [Range("t", 0, 5, 15)], [("t", 0), ("t", 1), ("t", 2)], {"t": "id"})
    assert Planned.of_json(json.loads(json.dumps(planned.to_json()))) == planned
    assert planned.offsets() == {
        "t-0": PartitionOffset(15, 25),
        "t-1": PartitionOffset(0, 10),  # never read
        "t-2": PartitionOffset(0, 2),
    }
    done = planned.then(there[:1], [Range("t", 0, 15, 25)], [("t", 0), ("deleted", 0)], {"t": "id"})
    assert done.offsets()["deleted-0"] == PartitionOffset(3, 3), "it is back"


class Parts:
    """Writes parts of batches with a sink that is exactly-once."""

    def __init__(self, server: str) -> None:
        self.server, self.topic = server, make_topic(server)
        self.sink = KafkaSink(self.topic, server, exactly_once=True)
        job = Job("summing", Summing(), {"in": MemorySource()}, {"sums": self.sink})
        self.codec = port_codec(job, "sums")
        self.run = uuid4().hex
        self.batches_before = 0

    def open(self, number: int, part: str = "00000") -> Any:
        return self.sink.open(self.batch(number), part)

    def batch(self, number: int) -> SinkBatch:
        return SinkBatch(self.run, "summing", "sums", number, self.codec, self.batches_before)

    def encoded(self, names: Iterable[str]) -> list[Any]:
        return [self.codec.encode(Sum(name, TIME, 1)) for name in names]

    def write(self, number: int, names: str, part: str = "00000") -> None:
        writer = self.open(number, part)
        writer.write(self.encoded(names))
        writer.finish()

    @property
    def names(self) -> str:
        """What a reader of committed records sees."""
        return "".join(sorted(json.loads(each.value())["name"] for each in committed(self.server, self.topic)))


@pytest.fixture(scope="module")
def transactional(kafka: str) -> str:
    """A cluster that has the topic of tokens."""
    Parts(kafka).sink.check("sums", Sum)
    return kafka


@pytest.fixture
def parts(transactional: str) -> Parts:
    return Parts(transactional)


def forget() -> None:
    """Do as another process would, which has neither producers nor tokens."""
    transactions._writers.clear()
    transactions._readers.clear()


@contextmanager
def another_process() -> Iterator[None]:
    """What is written in this block, another process writes; this one keeps its producers."""
    mine = dict(transactions._writers)
    forget()
    yield
    transactions._writers.clear()
    transactions._writers.update(mine)


def test_a_part_of_a_reprocessed_batch_is_written_once(parts: Parts) -> None:
    assert parts.sink.guarantee == "exactly-once"
    parts.write(0, "ab")
    parts.write(0, "ab")
    parts.write(0, "c", part="00001")
    forget()
    parts.write(0, "ab")
    parts.write(1, "d")
    parts.write(0, "c", part="00001")
    forget()
    parts.write(1, "d")
    assert parts.names == "abcd"


def test_a_part_that_was_not_finished_is_written_again(parts: Parts) -> None:
    given_up = parts.open(0)
    given_up.write(parts.encoded("ab"))
    given_up.abort()
    parts.write(0, "ab")
    assert parts.names == "ab"


def test_the_transaction_of_a_writer_that_died_is_ended(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    class DiedError(BaseException):
        pass

    def die(_: Any) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(transactions._Transactions, "_abort", lambda self: None)
        before_commit(patch, die)
        with pytest.raises(DiedError):
            parts.write(0, "ab")
    died = dict(transactions._writers)  # the client of a process that has died does not end its transaction
    forget()
    parts.write(0, "ab")
    assert parts.names == "ab"
    assert died


def before_commit(patch: pytest.MonkeyPatch, act: Any) -> None:
    """Call a function when all records of a part have been sent, and before their transaction is committed."""
    original = transactions._Transactions._flush

    def flush(self: Any) -> None:
        original(self)
        act(self)

    patch.setattr(transactions._Transactions, "_flush", flush)


def test_a_writer_that_another_one_overtakes_writes_nothing(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second writer begins while the first one is in its transaction, and commits before it."""
    overtaken: list[bool] = []

    def overtake(_: Any) -> None:
        if not overtaken:
            overtaken.append(True)
            with another_process():
                parts.write(0, "ab")

    before_commit(monkeypatch, overtake)
    parts.write(0, "ab")
    assert overtaken
    assert parts.names == "ab"


def test_a_process_continues_a_part_that_another_one_wrote(parts: Parts) -> None:
    parts.write(0, "a")
    with another_process():
        parts.write(1, "b")
    parts.write(1, "b")
    parts.write(2, "c")
    assert parts.names == "abc"


def test_a_token_is_found_behind_the_open_transaction_of_another_part(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Producer({"bootstrap.servers": parts.server, "log_level": 0, "transactional.id": uuid4().hex})
    original = transactions._Transactions.write

    def second(self: Any, *arguments: Any) -> None:
        other.init_transactions(PATIENCE)
        other.begin_transaction()
        for partition in range(16):
            other.produce(transactions.TOKENS_TOPIC, b'{"batch": 0}', b"other", partition)
        assert other.flush(PATIENCE) == 0
        original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(transactions._Transactions, "write", second)
        parts.write(0, "ab")
    forget()
    ended = threading.Timer(1, other.abort_transaction)
    ended.start()
    parts.write(0, "ab")
    ended.join()
    assert parts.names == "ab"


def test_a_writer_does_not_go_on_to_ask_for_tokens(parts: Parts) -> None:
    parts.write(0, "ab")
    forget()
    parts.write(0, "ab")
    (reader,) = transactions._readers.values()
    assert reader._client.assignment() == []


def test_a_part_contains_other_keys_after_a_checkpoint_was_rescaled(parts: Parts) -> None:
    parts.write(3, "a")
    parts.batches_before = 3
    parts.write(3, "b")
    assert parts.names == "ab", "nothing is lost"


def test_parts_of_other_runs_are_independent(parts: Parts) -> None:
    parts.write(0, "a")
    parts.run = uuid4().hex
    parts.write(0, "b")
    assert parts.names == "ab"


def test_a_topic_of_tokens_that_forgets_or_is_too_small_is_an_error(broker: OwnService) -> None:
    server, tokens = broker.address, transactions.TOKENS_TOPIC
    sink = KafkaSink(make_topic(server), server, exactly_once=True)
    make_topic(server, name=tokens)
    with pytest.raises(SinkError, match="the topic amadou-tokens has 1 partitions: it needs 16"):
        sink.check("sums", Sum)
    for policy in ("delete", "compact,delete"):
        delete(server, tokens)
        make_topic(server, 16, name=tokens, cleanup_policy=policy)
        with pytest.raises(SinkError, match=r"the topic amadou-tokens must have cleanup\.policy=compact: change it"):
            sink.check("sums", Sum)
    delete(server, tokens)


def test_a_record_of_somebody_else_in_the_topic_of_tokens_is_an_error(broker: OwnService) -> None:
    parts = Parts(broker.address)
    parts.sink.check("sums", Sum)
    odd = [{"value": value, "key": b"part"} for value in (b"{}", b"[", b'{"batch": "x"}')]
    fill(broker.address, transactions.TOKENS_TOPIC, [{**odd[n % 3], "partition": n} for n in range(16)])
    with pytest.raises(
        SinkError, match=r"the record at offset 0 in partition \d+ of the topic amadou-tokens is not one"
    ):
        parts.write(0, "a")
    delete(broker.address, transactions.TOKENS_TOPIC)


@pytest.mark.qualify
def test_a_cluster_without_transactions_is_an_error_before_the_run(broker: OwnService) -> None:
    topic = make_topic(broker.address)
    broker.stop()
    broker.set_properties({"transaction.state.log.replication.factor": 3})
    broker.start()
    sink = KafkaSink(topic, broker.address, exactly_once=True, give_up_after=timedelta(seconds=3))
    with pytest.raises(SinkError, match=r"did not answer for 3 s: .* its brokers have transactions"):
        sink.check("sums", Sum)
    broker.set_properties({})


def test_parts_of_ports_and_topics_with_similar_names_differ(parts: Parts) -> None:
    names = {
        Part.of(attrs.evolve(parts.batch(0), port=port), topic, "0").id for port, topic in (("a", "b-a"), ("a-b", "a"))
    }
    assert len(names) == 2


def test_a_large_part_that_another_process_overtook_is_written_once(parts: Parts) -> None:
    """The client learns of it while it still gets records."""
    parts.write(0, "a")
    with another_process():
        parts.write(1, "b")
    writer = parts.open(2)
    writer.write(parts.encoded("c") * 60_000)
    writer.finish()
    assert parts.names == "ab" + 60_000 * "c"


def test_the_records_of_parts_that_another_process_overtook_are_freed_from_memory(parts: Parts) -> None:
    parts.write(0, "a")
    with another_process():
        parts.write(1, "b")
    values = parts.encoded("c" * 5000)
    references = [sys.getrefcount(value) for value in values]
    writer = parts.open(2)
    writer.write(values)
    writer.finish()
    del writer
    now = [sys.getrefcount(value) for value in values]
    assert (
        sum(count > before for count, before in zip(now, references, strict=True)) < 10
    )  # not those that were being written


def test_a_record_that_kafka_refuses_ends_the_run(parts: Parts) -> None:
    writer = parts.open(0)
    writer.write(parts.encoded(["x" * 3_000_000]))
    with pytest.raises(SinkError, match="did not accept a transaction"):
        writer.finish()


def test_a_process_has_a_bounded_number_of_producers(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_MOST_WRITERS", 2)
    forget()
    for part in range(transactions._MOST_WRITERS + 2):
        parts.write(0, "a", part=f"{part:05}")
    assert len(transactions._writers) == transactions._MOST_WRITERS
