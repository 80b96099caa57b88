"""A Protobuf message class like those that protoc generates."""

from typing import Any

from google.protobuf import timestamp_pb2  # noqa: F401 - its file is a dependency
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

_FIELDS = {
    "channel": {"type": FieldDescriptorProto.TYPE_STRING},
    "views": {"type": FieldDescriptorProto.TYPE_INT64},
    "at": {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"},
}


def _message(name: str) -> DescriptorProto:
    label = FieldDescriptorProto.LABEL_OPTIONAL
    fields = [
        FieldDescriptorProto(name=field, number=number, label=label, **kind)
        for number, (field, kind) in enumerate(_FIELDS.items(), 1)
    ]
    return DescriptorProto(name=name, field=fields)


Default().Add(  # type: ignore[no-untyped-call]
    FileDescriptorProto(
        name="tests/views.proto",
        package="amadou.tests",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        message_type=[_message("Other"), _message("ViewCount")],
    )
)
ViewCount: Any = GetMessageClass(Default().FindMessageTypeByName("amadou.tests.ViewCount"))  # type: ignore[no-untyped-call]
ViewCount.__module__ = __name__
