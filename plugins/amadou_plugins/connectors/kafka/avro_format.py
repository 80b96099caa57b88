from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import orjson

from amadou.errors import StateDecodeError
from amadou.fields import fields_of, has_fields
from amadou.plugins import codec_for
from amadou.text import shown_value
from amadou_plugins.connectors.kafka.schema_format import NORMALIZE, SchemaFormat
from amadou_plugins.connectors.kafka.schema_registry import Registry


def _text(schema: str | Mapping[str, Any] | None) -> str | None:
    return orjson.dumps(schema).decode() if isinstance(schema, Mapping) else schema


@attrs.frozen
class AvroFormat(SchemaFormat):
    """Avro with a schema registry, in the format of Confluent's serializers: each key or value begins with the id of
    its schema. Needs ``pip install 'amadou[schema-registry]'``.

    A `KafkaSource` decodes records as dicts, or as instances of `type`, with the schema that they were written with. A
    `KafkaSink` encodes dicts, attrs classes, dataclasses and named tuples.

    :param schema: an Avro schema, as JSON or as a dict. A source converts records to this schema; by default, records
        keep the schema that they were written with. A sink writes with this schema; by default, with the subject's
        latest schema in the registry
    :param type: an attrs class, dataclass or named tuple for the decoded keys or values of a source
    :param subject_name_strategy: name of the subject under which a sink registers or finds the schema: ``"topic"``
        (such as ``views-value``), ``"record"`` (the record's full name) or ``"topic_record"``
    :param auto_register: `True` to register `schema` at the start of a run. With `False`, `schema` must be registered
    """

    schema: str | None = attrs.field(default=None, converter=_text, repr=False)
    type: Any = attrs.field(default=None, kw_only=True)
    name = "Avro"

    def deserializer(self, registry: Registry) -> Callable[[bytes], Any]:
        client = registry.client
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        if self.schema is not None:
            _parsed(registry, self.schema)
        deserialize: Any = AvroDeserializer(client, self.schema)
        return deserialize if self.type is None else partial(_typed, registry, self.type, deserialize)

    def serializer(self, registry: Registry, context: Any, type_: Any) -> Callable[[Any], bytes]:
        client = registry.client
        from confluent_kafka.schema_registry.avro import AvroSerializer

        schema = orjson.loads(self._find(registry, context))
        _check_fields(registry, context, type_, schema)
        conf = {
            "subject.name.strategy": self.subject,
            "auto.register.schemas": self.auto_register and self.schema is not None,
            "use.latest.version": self.schema is None,
            "normalize.schemas": NORMALIZE,
            "validate.strict.allow.default": True,
        }
        return partial(_serialized, AvroSerializer(client, self.schema, conf=conf), context, schema)

    def _find(self, registry: Registry, context: Any) -> str:
        """Return the schema to write with, which is in the registry."""
        from confluent_kafka.schema_registry import Schema

        record = None if self.schema is None else _record_name(_parsed(registry, self.schema))
        subject = self.subject(context, record)
        if subject is None:
            problem = f"subject_name_strategy={self.subject_name_strategy!r} needs the name of a record"
            raise registry.error(f'{registry.label}: {problem}: set schema= to a record, or use "topic"')
        if self.schema is None:
            missing = f"has no subject {subject!r}: register a schema for the subject, or set schema="
            latest = registry.ask(lambda client: client.get_latest_version(subject), {404: missing})
            return str(latest.schema.schema_str)
        schema = Schema(self.schema, "AVRO")
        method = "register_schema_full_response" if self.auto_register else "lookup_schema"
        registry.ask(lambda client: getattr(client, method)(subject, schema, NORMALIZE), self.hints(subject))
        return self.schema


def _parsed(registry: Registry, schema: str) -> Any:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(orjson.loads(schema))
    except (AttributeError, KeyError, TypeError, ValueError, SchemaParseException, UnknownType) as error:
        raise registry.error(f"{registry.label}: schema= is not an Avro schema: correct it ({error})") from error


def _record_name(schema: Any) -> str | None:
    return schema.get("name") if isinstance(schema, dict) else None


def _check_fields(registry: Registry, context: Any, type_: Any, schema: Any) -> None:
    """Raise an error if the fields of a class and of a record do not have the same names."""
    if not has_fields(type_) or not isinstance(schema, dict) or "fields" not in schema:
        return
    own, names = {of.name for of in fields_of(type_)}, {field["name"] for field in schema["fields"]}
    needed = {field["name"] for field in schema["fields"] if "default" not in field}
    problems = [f"the schema has no field {', '.join(sorted(own - names))}"] if own - names else []
    problems += [f"{type_.__name__} has no field {', '.join(sorted(needed - own))}"] if needed - own else []
    if problems:
        what = f"{type_.__name__} does not fit the Avro schema {schema['name']} of topic {context.topic}"
        raise registry.error(f"{registry.label}: {what}: {', and '.join(problems)}: change one of the two")


def _serialized(serialize: Any, context: Any, schema: Any, value: Any) -> bytes:
    if value is None:
        raise TypeError("it is None")
    try:
        encoded: bytes = serialize(value, context)
    except OverflowError as error:
        raise ValueError(_misfit(value, schema) or str(error)) from error
    return encoded


def _misfit(value: Any, schema: Any) -> str | None:
    """Describe the field that does not fit a schema. Return `None` if the schema refers to other schemas."""
    from fastavro.schema import UnknownType
    from fastavro.validation import ValidationError, validate

    try:
        validate(value, schema)
    except ValidationError as error:
        return str(error.errors[0])
    except UnknownType:
        pass
    return None


def _typed(registry: Registry, type_: Any, deserialize: Callable[[bytes], Any], data: bytes) -> Any:
    value = deserialize(data)
    try:
        return codec_for(type_).decode(value)
    except StateDecodeError as error:
        problem = f"{shown_value(value, 100)} is not a {type_.__name__}: change the class, or set schema="
        raise registry.error(f"{registry.label}: {problem} ({error.mismatch})") from error
