"""Formats whose schemas are in a schema registry."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, ClassVar, Final

import attrs

from amadou import Param, Secret
from amadou.errors import AmadouError, EncodeError
from amadou.fields import has_fields
from amadou.plugins import Codec, codec_for
from amadou.text import shown_value
from amadou_plugins.connectors._settings import check_no_password, check_secret
from amadou_plugins.connectors.kafka.client import ClusterSettings
from amadou_plugins.connectors.kafka.schema_registry import SECRET_OPTIONS, Registry

NORMALIZE: Final = True
"""A schema that differs from a registered one only in its formatting is not another version."""
_STRATEGIES: Final = ("topic", "record", "topic_record")
_MAGIC: Final = b"\0"
_HEADER: Final = 5
"""Length of the magic byte and the schema id."""
_UNENCODABLE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of the libraries for values that do not fit a schema."""


@attrs.frozen
class SchemaFormat:
    """The base class of formats whose schemas are in a schema registry."""

    subject_name_strategy: str = attrs.field(default="topic", kw_only=True, validator=attrs.validators.in_(_STRATEGIES))
    auto_register: bool = attrs.field(default=True, kw_only=True)
    name: ClassVar[str]

    def deserializer(self, registry: Registry) -> Callable[[bytes], Any]:
        """Return a function that decodes a key or a value whose schema is in the registry.

        :raises AmadouError: a setting of the format is invalid
        """
        raise NotImplementedError

    def serializer(self, registry: Registry, context: Any, type_: Any) -> Callable[[Any], bytes]:
        """Return a function that encodes a key or a value. Find or register its schema.

        :param context: the topic, and the part of its records that is encoded, for confluent-kafka
        :param type_: type of the keys or values
        :raises AmadouError: the registry does not answer or refuses the schema, or the type does not fit the schema
        """
        raise NotImplementedError

    def subject(self, context: Any, record: str | None) -> str | None:
        """Return the registry's name for the schemas of a topic's keys or values.

        :param record: full name of the schema's record; `None` if it has no name
        """
        from confluent_kafka import schema_registry

        strategy = getattr(schema_registry, f"{self.subject_name_strategy}_subject_name_strategy")
        subject: str | None = strategy(context, record)
        return subject

    def hints(self, subject: str) -> dict[int, str]:
        """Return the problems with a subject's schema by HTTP status; see `Registry.ask`."""
        return {
            404: f"does not have this schema for subject {subject!r}: register the schema, or set auto_register=True",
            409: f"refuses the schema, which is incompatible with earlier schemas of subject {subject!r}: change the "
            "schema, for example give new fields a default, or change the subject's compatibility level",
            422: f"refuses the schema for subject {subject!r}: correct the schema",
        }


class Reader:
    """Decodes the keys or values of records.

    :param part: ``"key"`` or ``"value"``
    """

    def __init__(self, registry: Registry, form: SchemaFormat, part: str) -> None:
        self._registry, self._form, self._part = registry, form, part
        self._deserialize = form.deserializer(registry)
        self._known: set[bytes] = set()

    def decode(self, data: bytes) -> Any:
        """Decode a key or a value.

        :raises AmadouError: the data do not have this format, or their schema is not in the registry
        """
        try:
            if not _has_header(data):
                raise ValueError("it does not begin with a zero byte and a schema id")
            if not self._knows(data[:_HEADER]):
                raise ValueError(f"the registry has no schema with the id {_id(data)}")
            return self._deserialize(data)
        except AmadouError:
            raise
        except Exception as error:  # the libraries raise errors of many classes for such data
            label, what = self._registry.label, f"the {self._part} {shown_value(data, 100)}"
            todo = f"write it with Confluent's {self._form.name} serializer and this schema registry"
            raise self._registry.error(f"{label}: {what} is not {self._form.name}: {todo} ({error})") from error

    def fetch_schemas(self, parts: Iterable[bytes | None]) -> None:
        """Fetch the schemas of keys or values. `decode` then does not need the registry, so that an outage ends the run
        instead of making dead letters.

        :raises AmadouError: the registry does not answer
        """
        for header in {data[:_HEADER] for data in parts if data is not None and _has_header(data)}:
            self._knows(header)

    def _knows(self, header: bytes) -> bool:
        if header not in self._known and self._registry.ask(partial(_has_schema, _id(header))):
            self._known.add(header)
        return header in self._known


def _has_header(data: bytes) -> bool:
    return data[:1] == _MAGIC and len(data) > _HEADER


def _id(data: bytes) -> int:
    return int.from_bytes(data[1:_HEADER], "big")


def _has_schema(id_: int, client: Any) -> bool:
    from confluent_kafka.schema_registry import SchemaRegistryError

    try:
        client.get_schema(id_)
    except SchemaRegistryError as error:
        if error.http_status_code != 404:
            raise
        return False
    return True


class SchemaCodec:
    """Encodes keys or values with a schema from a registry.

    :param part: ``"key"`` or ``"value"``
    :raises AmadouError: see `SchemaFormat.serializer`
    """

    def __init__(self, registry: Registry, form: SchemaFormat, topic: str, part: str, type_: Any) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._type, self._what = type_, "it" if part == "value" else "its key"
        self._name = form.name
        self._fields = _fields_codec(type_)
        self._serialize = form.serializer(registry, SerializationContext(topic, MessageField(part)), type_)
        self._reader = Reader(registry, form, part)

    def encode(self, value: Any) -> bytes:
        """Encode a key or a value.

        :raises EncodeError: the value does not fit the type or the schema
        """
        plain = value if self._fields is None else self._fields.encode(value)
        try:
            return self._serialize(plain)
        except _UNENCODABLE as error:
            why = f"{self._what} does not fit the {self._name} schema: {error}"
            raise EncodeError(value, self._type, why) from error

    def decode(self, encoded: bytes) -> Any:
        """Return the decoded key or value: an instance of the port's class if the class has fields."""
        decoded = self._reader.decode(encoded)
        return self._fields.decode(decoded) if self._fields is not None and isinstance(decoded, dict) else decoded


def _fields_codec(type_: Any) -> Codec[Any] | None:
    """Return the codec that converts between the instances of a class with fields and dicts."""
    return codec_for(type_) if has_fields(type_) else None


@cache
def reader(registry: Registry, form: SchemaFormat, part: str) -> Reader:
    """Return this process's reader for a format."""
    return Reader(registry, form, part)


@cache
def schema_codec(registry: Registry, form: SchemaFormat, topic: str, part: str, type_: Any) -> SchemaCodec:
    """Return this process's codec for a format."""
    return SchemaCodec(registry, form, topic, part, type_)


def _format(form: SchemaFormat | str | None) -> SchemaFormat | None:
    if form == "avro":
        from amadou_plugins.connectors.kafka.avro_format import AvroFormat

        return AvroFormat()
    if form is None or isinstance(form, SchemaFormat):
        return form
    raise AmadouError(f'{form!r} is not a format: use an AvroFormat, a ProtobufFormat or "avro"')


@attrs.frozen
class FormatSettings(ClusterSettings):
    """Settings for the formats of a topic's records, beside the settings for its cluster."""

    key_format: SchemaFormat | None = attrs.field(default=None, converter=_format, kw_only=True)
    value_format: SchemaFormat | None = attrs.field(default=None, converter=_format, kw_only=True)
    schema_registry: str | Param | None = attrs.field(default=None, kw_only=True)
    schema_registry_options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self._formats and self.schema_registry is None:
            raise self._error("key_format and value_format need a schema registry: set schema_registry= to its URL")
        instead = 'pass the login as schema_registry_options={"basic.auth.user.info": Secret("user:password")}'
        what = f"{type(self).__name__}: schema_registry"
        check_no_password(self._error, what, self.schema_registry, instead)
        if isinstance(self.schema_registry, Secret):
            raise self._error(f"{what} is no secret: {instead}")
        for name in SECRET_OPTIONS:
            check_secret(self._error, f"schema_registry_options[{name!r}]", self.schema_registry_options.get(name))

    @property
    def _formats(self) -> dict[str, SchemaFormat]:
        """The formats by the part of a record that they encode."""
        formats = {"key": self.key_format, "value": self.value_format}
        return {part: form for part, form in formats.items() if form is not None}

    def _registry(self, label: str) -> Registry:
        return Registry(label, str(self.schema_registry), self.schema_registry_options, self._error)
