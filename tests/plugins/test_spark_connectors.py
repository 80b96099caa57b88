from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Param, Secret, SinkSpec, Subject
from amadou.errors import SinkError, SourceError
from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors import SparkSink, SparkSource
from amadou_plugins.connectors._arrow_values import python_values
from amadou_runtime import TestRun, run
from amadou_runtime.jobs.named_connectors import with_connectors

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
COLUMNS = (
    "channel STRING, at TIMESTAMP, sizes STRUCT<width: INT, height: INT>, tags MAP<STRING, INT>, price DECIMAL(9,2)"
)


@frozen
class View:
    channel: str
    at: datetime
    length: timedelta | None
    tags: dict[str, int]


class Views(Handler):
    views = SinkSpec(View)
    rows = SinkSpec(dict)

    def key_event(self, record: dict[str, Any]) -> KeyedEvent[Any]:
        return KeyedEvent(record["channel"], record.get("at") or START, record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.rows.collect(subject, event.value)
        self.views.collect(subject, View(subject.key, subject.timestamp, None, {"a": 1}))


def job(source: Any = None, sink: Any = None) -> tuple[Job, MemorySink]:
    rows = MemorySink()
    source = source or MemorySource([{"channel": "a"}])
    return Job("views", Views(), {"in": source}, {"views": sink or MemorySink(), "rows": rows}), rows


def rows_of(spark: Any, directory: Path) -> list[dict[str, Any]]:
    batches = spark.read.parquet(str(directory))._collect_as_arrow()  # Spark 3.5 has no toArrow
    columns = [dict(zip(batch.schema.names, map(python_values, batch.columns), strict=True)) for batch in batches]
    return [dict(zip(of, row, strict=True)) for of in columns for row in zip(*of.values(), strict=True)]


def test_a_test_run_of_a_job_with_a_spark_source_needs_no_spark() -> None:
    views, _ = job(SparkSource("rate"), SparkSink("noop"))
    test = TestRun(views)
    test.add_record({"channel": "a", "at": START})
    assert test.run().records("views") == [View("a", START, None, {"a": 1})]


def test_a_spark_source_on_the_embedded_engine_is_an_error() -> None:
    views, _ = job(SparkSource("rate"))
    with pytest.raises(
        SourceError, match=r"the embedded engine does not support SparkSource\('rate'\): run the job with"
    ):
        run(views, engine="embedded")


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (
            dict[tuple[int, int], int],
            "SparkSink.'noop'. cannot write the values of port 'views': the field value: .* has keys",
        )
    ],
)
def test_a_port_whose_type_has_no_columns_is_an_error_before_the_run(type_: Any, why: str) -> None:
    with pytest.raises(SinkError, match=why):
        SparkSink("noop").check("views", type_)


def test_a_batch_without_values_needs_no_spark() -> None:
    sink = SparkSink("noop")
    sink.commit(SinkBatch("run", "job", "views", 0, sink.codec(int)), [])


def test_a_spark_source_is_bounded_if_it_is_declared_so() -> None:
    assert not SparkSource("rate").bounded
    assert SparkSource("parquet", bounded=True).bounded


def test_options_may_be_parameters_and_secrets() -> None:
    options = {"url": "jdbc:x", "user": Param("USER_NAME"), "password": Param("LOGIN", secret=True)}
    views, _ = job(SparkSource(Param("FORMAT"), options=options), SparkSink("jdbc", options=options))
    assert sorted(param.name for param in views.params) == ["FORMAT", "LOGIN", "LOGIN", "USER_NAME", "USER_NAME"]
    filled = views.with_params({"FORMAT": "jdbc", "USER_NAME": "me", "LOGIN": "hidden-in-options"})
    source, sink = filled.sources["in"], filled.sinks["views"]
    assert source == SparkSource(
        "jdbc", options={"url": "jdbc:x", "user": "me", "password": Secret("hidden-in-options")}
    )
    assert "hidden-in-options" not in repr((source, sink))


def test_the_command_line_gives_options_of_any_name() -> None:
    views, _ = job()
    named = with_connectors(
        views,
        {"in": "spark:parquet?path=in/&schema=a%20INT&bounded=yes&select=a%20%2B%201&latestFirst=true"},
        {"views": ["spark:jdbc?dbtable=views&password=hidden-on-the-line"]},
    )
    options = {"path": "in/", "latestFirst": "true"}
    assert named.sources["in"] == SparkSource(
        "parquet", schema="a INT", select=["a + 1"], bounded=True, options=options
    )
    secret = Secret("hidden-on-the-line")
    assert named.sinks["views"] == SparkSink("jdbc", options={"dbtable": "views", "password": secret})


@pytest.mark.parametrize(
    "value",
    [
        "jdbc:postgresql://h/d?user=u&password=hunter22",
        "jdbc:sqlserver://h;user=u;password = hunter22",
        "jdbc:mysql://(host=h,user=u,password=hunter22)/d",
        "jdbc:sqlserver://h:1433;user=u; Password=hunter22",
        "jdbc:oracle:thin:scott/hunter22@//h:1521/s",
        "mongodb://u:hunter22@h/d",
        "mongodb://u:hunt/er22@h:27017/d",
        "mongodb://u:hunter22?x@h:27017/d",
        "mongodb://u:hunter22#x@h1,h2:27017/d",
        "mongodb://u:2,hunter22@h",
        "s3a://key:hunter22@bucket/in/",
        "https://h/in?access_token=hunter22",
        "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=hunter22=",
    ],
)
def test_an_option_that_contains_a_password_is_an_error(value: str) -> None:
    for connector, error in ((SparkSource, SourceError), (SparkSink, SinkError)):
        message = (
            f"{connector.__name__}: the option 'url' contains a password, which would appear in logs: "
            "pass it in a separate secret option, or make the entire value a Secret or a Param with secret=True"
        )
        with pytest.raises(error, match=message) as caught:
            connector("jdbc", options={"url": value})
        assert "hunter22" not in str(caught.value)
        assert connector("jdbc", options={"url": Secret(value)}).options == {"url": Secret(value)}
    views, _ = job(sink=SparkSink("jdbc", options={"url": Param("URL")}))
    with pytest.raises(SinkError, match="the option 'url' contains a password"):
        views.with_params({"URL": value})


@pytest.mark.parametrize(
    "value",
    [
        "jdbc:postgresql://h:5432/d?user=u",
        "http://[::1]:80/a@b",
        "http://h:80?to=a@b",
        "mongodb://h1:27017,h2:27018/d?name=a@b",
        "jdbc:postgresql://h/d?user=u@server&at=10:30",
        "hdfs://h:8020/a@b",
        "jdbc:oracle:thin:@//h:1521/s",
        "abfss://container@account.dfs.core.windows.net:443/in/",
        "(SELECT * FROM views WHERE token='x' AND password = 'y') AS views",
        "s3a://bucket/token=a/day=1/",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
    ],
)
def test_options_without_passwords_are_accepted(value: str) -> None:
    assert SparkSink("jdbc", options={"url": value, "number": 5}).options["url"] == value


@pytest.mark.spark
def test_rows_of_a_spark_source_become_dicts(spark: Any, tmp_path: Path) -> None:
    at = "TIMESTAMP '2025-01-01 00:00:00.000007Z'"
    sizes, tags = "named_struct('width', 1, 'height', 2)", "map('x', 1, 'y', 2)"
    selected = f"'a' AS channel, {at} AS at, {sizes} AS sizes, {tags} AS tags, CAST(1.5 AS DECIMAL(9,2)) AS price"
    spark.sql(f"SELECT {selected}").write.parquet(str(tmp_path / "in"))
    views, rows = job(SparkSource("parquet", options={"path": str(tmp_path / "in")}, schema=COLUMNS, bounded=True))
    run(views)
    assert rows.records == [
        {
            "channel": "a",
            "at": START + timedelta(microseconds=7),
            "sizes": {"width": 1, "height": 2},
            "tags": {"x": 1, "y": 2},
            "price": Decimal("1.50"),
        }
    ]


@pytest.mark.spark
def test_the_columns_of_records_can_be_selected(spark: Any) -> None:
    source = SparkSource(
        "rate-micro-batch",
        options={"rowsPerBatch": Param("ROWS", type=int), "numPartitions": 1, "startTimestamp": 1_735_689_600_000},
        select=["'a' AS channel", "value + 5 AS number", "DATE '2025-01-01' AS day"],
        bounded=True,
    )
    views, rows = job(source)
    run(views, params={"ROWS": "3"})
    assert rows.records[:3] == [{"channel": "a", "number": number, "day": date(2025, 1, 1)} for number in (5, 6, 7)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("source", "why"),
    [
        (SparkSource("nothing"), r"SparkSource\('nothing'\) cannot be read: .*Failed to find.* nothing"),
        (SparkSource("parquet", options={"path": "/nowhere"}), "cannot be read: .*chema"),
        (
            SparkSource("rate", select=["missing + 1"]),
            "cannot be read: .*missing.*Correct the source's format, options, schema or select",
        ),
        (SparkSource("kafka", options={"a": Secret("hidden-in-source")}), "cannot be read: "),
    ],
)
def test_a_source_that_spark_cannot_read_is_an_error_in_one_line(spark: Any, source: SparkSource, why: str) -> None:
    views, _ = job(source)
    with pytest.raises(SourceError, match=why) as caught:
        run(views)
    assert len(str(caught.value).splitlines()) == 1
    assert "hidden-in-source" not in str(caught.value)


@pytest.mark.spark
def test_values_are_appended_with_the_columns_of_their_type(spark: Any, tmp_path: Path) -> None:
    for _ in range(2):
        views, _ = job(sink=SparkSink("parquet", options={"path": str(tmp_path / "out")}))
        run(views)
    view = {"channel": "a", "at": START, "length": None, "tags": {"a": 1}}
    assert rows_of(spark, tmp_path / "out") == [view, view]


@pytest.mark.spark
def test_values_of_a_port_with_a_codec_of_its_own_become_json(spark: Any, tmp_path: Path) -> None:
    class Reversed(Codec[str]):
        def encode(self, value: str) -> Any:
            return value[::-1]

        def decode(self, encoded: Any) -> str:
            return str(encoded)[::-1]

    sink = SparkSink("parquet", options={"path": str(tmp_path / "out")})
    sink.commit(SinkBatch("run", "job", "views", 0, Reversed()), [["cba"]])
    assert rows_of(spark, tmp_path / "out") == [{"value": '"cba"'}]


@pytest.mark.spark
def test_the_error_of_a_sink_that_spark_cannot_write_does_not_show_secret_options(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    hidden = Secret(str(tmp_path / "file-hidden-in-sink"))
    hidden_url = Secret("jdbc:none:hidden-in-sink")
    Path(hidden.reveal()).write_text("")
    for sink, why in (
        (SparkSink("nothing"), "Failed to find.* nothing"),
        (SparkSink("jdbc", options={"url": hidden_url, "dbtable": "views"}), "No suitable driver"),
        (SparkSink("parquet", options={"path": hidden}), "Correct the sink's options or target, and restart"),
    ):
        batch = SinkBatch("run", "job", "views", 7, sink.codec(int))
        with pytest.raises(SinkError, match=f"cannot write batch 7 of port 'views': .*{why}") as caught:
            sink.commit(batch, [[batch.codec.encode(1)]])
        assert len(str(caught.value).splitlines()) == 1
        assert "hidden-in-sink" not in str(caught.value)


@pytest.mark.parametrize("version", ["19.0.1", "20.0.0"])
def test_maps_become_dicts_with_each_version_of_arrow(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(pa, "__version__", version)
    map_ = pa.map_(pa.string(), pa.list_(pa.map_(pa.int64(), pa.string())))
    array = pa.array([[("a", [[(1, "x")], None])], None, []], map_)
    assert python_values(array) == [{"a": [{1: "x"}, None]}, None, {}]
    within = pa.array([{"number": 1, "values": [("a", None)]}, None], pa.struct({"number": pa.int64(), "values": map_}))
    assert python_values(within) == [{"number": 1, "values": {"a": None}}, None]
    assert python_values(pa.array([1, None])) == [1, None]
    with pytest.raises(KeyError):
        python_values(pa.array([[("a", None), ("a", None)]], map_))
