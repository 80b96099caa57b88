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
from pathlib import Path
from typing import Any
from uuid import uuid4

import report
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from events import DISORDER_SECONDS, Tally, row_of, view_line, views
from machine import heading, machine
from peers import Batch, batches_of, example_job, new_session, run_query
from report import Run
from rich.console import Console
from throughput import add_measuring_options

PARTITIONS = 4
SPARK_KAFKA = (
    # The newest version for which Maven Central has all artifacts; runs on Spark 4.3.0.
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=140)


def main() -> int:
    """Run the benchmark. Return 1 if the results differ."""
    options = parse_options()
    described = machine()
    console.print(f"[bold]{heading(described)}[/bold]", soft_wrap=True)
    jars = ",".join(map(str, spark_kafka_jars()))
    spark = new_session(options.master, {"spark.jars": jars, **dict(options.conf)})
    try:
        with tempfile.TemporaryDirectory(prefix="amadou-connectors-") as scratch:
            runs = measure(options, spark, Path(scratch))
    finally:
        spark.stop()
    agreed = report.print_agreement(console, runs)
    console.print(report.table(runs, "Tumbling window: counts by key and minute, from Kafka to Kafka"))
    console.print(report.FOOTNOTE)
    return 0 if agreed else 1


def measure(options: argparse.Namespace, spark: Any, scratch: Path) -> list[Run]:
    """Run both peers with each key count in turn, round by round. The first round is the warm-up and is discarded."""
    runs = []
    batches = options.warmup + options.batches
    incoming = {
        keys: topic_of_views(options.kafka, keys, options.events, batches, options.seed) for keys in options.keys
    }
    for round_ in range(options.rounds + 1):
        for keys in options.keys if round_ else options.keys[:1]:
            expected: Tally | None = None
            for peer, play in PLAYS.items():
                outgoing = new_topic(options.kafka)
                checkpoint = Path(tempfile.mkdtemp(prefix=f"{peer}-", dir=scratch))
                played = play(spark, options.kafka, incoming[keys], outgoing, options.events, checkpoint)
                tally = tally_of(options.kafka, outgoing)
                expected = expected or tally
                if round_:
                    run = Run.of(peer, keys, options.events, round_, options.warmup, played, tally, expected)
                    console.print(run.progress_line(), soft_wrap=True)
                    runs.append(run)
    return runs


def play_amadou(spark: Any, kafka: str, incoming: str, outgoing: str, events: int, checkpoint: Path) -> list[Batch]:
    """Run the handler of the tumbling-window example."""
    import amadou_runtime
    from amadou import Job
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
    running = amadou_runtime.start(job, spark, checkpoint=str(checkpoint), trigger="available-now")
    running.await_termination()
    return batches_of(running.query, python_sources=True)


class KeyedByValue:
    """Applies a `key_event` for lines to the values of Kafka records."""

    def __init__(self, key_event: Callable[[bytes], Any]) -> None:
        self._key_event = key_event

    def __call__(self, record: Any) -> Any:
        return self._key_event(record.value)


def play_spark_sql(spark: Any, kafka: str, incoming: str, outgoing: str, events: int, checkpoint: Path) -> list[Batch]:
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


PLAYS = {"spark-sql": play_spark_sql, "amadou": play_amadou}


def topic_of_views(kafka: str, keys: int, events: int, batches: int, seed: int) -> str:
    """Create a topic with the views of `batches` minutes, one minute for each batch."""
    topic = new_topic(kafka)
    random_ = random.Random(seed)
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    for batch in range(batches):
        for position, (channel, timestamp) in enumerate(views(keys, events, batch, random_)):
            producer.produce(topic, view_line(channel, timestamp), partition=position % PARTITIONS)
        producer.flush()
    return topic


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
        epilog="Exit status: 0, or 1 if the results differ.",
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
    sys.exit(main())
