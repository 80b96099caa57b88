"""Throughput of the tumbling-window job from Kafka to Kafka, side by side with the same job in Spark SQL.

    scripts/services start kafka && source .services/env
    python benchmarks/connectors.py

See `benchmarks/README.md` for the measurements and the method.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import report
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from events import DISORDER_SECONDS, ClosedMinutes, Tally, row_of, view_line, views
from machine import heading, machine
from peers import Batch, example_job, run_job, run_query
from report import Run
from rich.console import Console
from sessions import WARM_UP_BATCHES, WARM_UP_EVENTS, WARM_UP_KEYS, OwnSession
from throughput import ABOUT_RUNS, add_measuring_options

from amadou import Job

PARTITIONS = 4
SPARK_KAFKA = (
    # The newest version for which Maven Central has all artifacts; runs on Spark 4.3.0.
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=160)


def main() -> int:
    """Run the benchmark. Return 1 if results are wrong."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]", soft_wrap=True)
    jars = ",".join(map(str, spark_kafka_jars()))
    topics = {
        keys: topic_of_views(options.kafka, keys, options.events, options.warmup + options.batches, options.seed)
        for keys in options.keys
    }
    first, _ = topic_of_views(
        options.kafka, WARM_UP_KEYS, min(options.events, WARM_UP_EVENTS), WARM_UP_BATCHES, options.seed
    )
    runs = report.in_turns(console, options, PEERS, partial(run_peer, options, jars, first, topics))
    agreed = report.print_agreement(console, runs)
    console.print(report.table(runs, "Tumbling window: counts by key and minute, from Kafka to Kafka"))
    console.print(report.FOOTNOTE)
    return 0 if agreed else 1


def run_peer(
    options: argparse.Namespace,
    jars: str,
    first: str,
    topics: dict[int, tuple[str, Tally]],
    peer: str,
    keys: int,
    settings: dict[str, str],
) -> Run:
    """Run one peer once, in a session of its own, with a new topic and a new checkpoint.

    :param first: topic of the query that warms up the session
    :param topics: topics to read, and the tallies of their closed minutes, by number of keys
    """
    incoming, expected = topics[keys]
    outgoing = new_topic(options.kafka)
    with (
        tempfile.TemporaryDirectory(prefix="amadou-connectors-") as directory,
        OwnSession(options.master, {"spark.jars": jars, **settings}) as own,
    ):
        process = partial(own.call, process_topic, peer, options.kafka)
        process(first, new_topic(options.kafka), options.events, Path(directory, "warm-up"))
        batches = own.with_cpu(process(incoming, outgoing, options.events, Path(directory, "checkpoint")))
    tally = tally_of(options.kafka, outgoing)
    return Run.of(peer, keys, options.events, options.warmup, batches, tally, expected)


def process_topic(
    spark: Any, peer: str, kafka: str, incoming: str, outgoing: str, events: int, checkpoint: Path
) -> list[Batch]:
    """Run a peer over a topic. Return the batches as reported by Spark."""
    return PEERS[peer](spark, kafka, incoming, outgoing, events, checkpoint)


def run_amadou(spark: Any, kafka: str, incoming: str, outgoing: str, events: int, checkpoint: Path) -> list[Batch]:
    """Run the handler of the tumbling-window example."""
    from amadou_plugins.connectors import KafkaSink, KafkaSource

    handler = example_job().handler
    source = KafkaSource(incoming, kafka, max_records_per_batch=events, key_event=KeyedByValue(handler.key_event))
    job = Job(
        "benchmark",
        handler=handler,
        sources={"views": source},
        sinks={"sums": KafkaSink(outgoing, kafka)},
        watermark_delay=DISORDER_SECONDS,
    )
    # batches differ in size: the source first reads the partitions that are behind in event time
    return run_job(spark, job, checkpoint)


class KeyedByValue:
    """Applies a `key_event` for lines to the values of Kafka records."""

    def __init__(self, key_event: Callable[[bytes], Any]) -> None:
        self._key_event = key_event

    def __call__(self, record: Any) -> Any:
        return self._key_event(record.value)


def run_spark_sql(spark: Any, kafka: str, incoming: str, outgoing: str, events: int, checkpoint: Path) -> list[Batch]:
    """Run Spark SQL's own window, with Spark's own Kafka source and sink."""
    from pyspark.sql.functions import from_json, window

    servers = {"kafka.bootstrap.servers": kafka}
    records = (
        spark.readStream.format("kafka")
        .options(**servers, subscribe=incoming, startingOffsets="earliest", maxOffsetsPerTrigger=str(events))
        .load()
    )
    counted = (
        records.select(from_json(records.value.cast("string"), "channel_id string, timestamp timestamp").alias("view"))
        .select("view.*")
        .withWatermark("timestamp", f"{DISORDER_SECONDS} seconds")
        .groupBy("channel_id", window("timestamp", "1 minute"))
        .count()
        .selectExpr("to_json(struct(channel_id, window.start AS timestamp, count AS sum)) AS value")
    )
    writer = counted.writeStream.outputMode("append").format("kafka").options(**servers, topic=outgoing)
    return run_query(writer, checkpoint)


PEERS = {"spark-sql": run_spark_sql, "amadou": run_amadou}


def topic_of_views(kafka: str, keys: int, events: int, batches: int, seed: int) -> tuple[str, Tally]:
    """Create a topic with the views of `batches` minutes, one minute for each batch. Return it, and the tally of the
    minutes that the watermark has closed at its end.
    """
    topic = new_topic(kafka)
    random_ = random.Random(seed)
    minutes = ClosedMinutes()
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    for batch in range(batches):
        for position, (channel, timestamp) in enumerate(views(keys, events, batch, random_)):
            producer.produce(topic, view_line(channel, timestamp), partition=position % PARTITIONS)
            minutes.add(channel, timestamp)
        producer.flush()
        minutes.end_batch(batch)
    return topic, minutes.expected


def new_topic(kafka: str) -> str:
    name = f"benchmark-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(60)
    return name


def tally_of(kafka: str, topic: str) -> Tally:
    """Return the tally of an output topic."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "benchmark", "enable.auto.commit": False})
    total = Tally()
    for partition in range(PARTITIONS):
        at, end = consumer.get_watermark_offsets(TopicPartition(topic, partition))
        consumer.assign([TopicPartition(topic, partition, at)])
        while at < end:
            for message in consumer.consume(min(10_000, end - at), 1):
                total += row_of(json.loads(message.value() or b""))
                at = message.offset() + 1
    consumer.close()
    return total


def spark_kafka_jars() -> list[Path]:
    """Return the jars that Spark's own Kafka source and sink need, from Maven Central."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "amadou" / "spark-kafka"
    jars = []
    for artifact in SPARK_KAFKA:
        _, name, version = artifact.split(":")
        jar = cache / f"{name}-{version}.jar"
        if not jar.exists():
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"]
            subprocess.run(command, check=True)
        jars.append(jar)
    return jars


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Throughput of the tumbling-window job from Kafka to Kafka, side by side with Spark SQL.",
        epilog=f"{ABOUT_RUNS} The defaults take about 12 minutes on two idle cores. "
        "Exit status: 0, or 1 if results are wrong.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    kafka = os.environ.get("AMADOU_KAFKA")
    parser.add_argument(
        "--kafka", default=kafka, required=kafka is None, help="HOST:PORT of a broker; scripts/services starts one"
    )
    add_measuring_options(parser)
    parser.set_defaults(keys=[1000, 100_000])
    return parser.parse_args()


if __name__ == "__main__":
    import connectors

    sys.exit(connectors.main())
