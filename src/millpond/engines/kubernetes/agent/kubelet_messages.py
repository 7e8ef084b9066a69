"""The messages that a kubelet exchanges with plugins and drivers, made of a table instead of generated code.

Sources: ``deviceplugin/v1beta1``, ``podresources/v1``, ``pluginregistration/v1`` and ``dra/v1`` of
``k8s.io/kubelet/pkg/apis``, each with its ``api.proto``. Fields
that are not used here are left out: both sides pass over what they do not know. An entry of a map is a message of key
and value, as the wire has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "millpond.kubelet"
_SCALARS: Final = {"string": _FIELD.TYPE_STRING, "bool": _FIELD.TYPE_BOOL}
_MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "Empty": (),
    "RegisterRequest": ("version string", "endpoint string", "resource_name string"),
    "DevicePluginOptions": (),
    "Device": ("ID string", "health string"),
    "ListAndWatchResponse": ("devices *Device",),
    "ContainerAllocateRequest": ("devicesIDs *string",),
    "AllocateRequest": ("container_requests *ContainerAllocateRequest",),
    "Variable": ("key string", "value string"),
    "Mount": ("container_path string", "host_path string", "read_only bool"),
    "ContainerAllocateResponse": ("envs *Variable", "mounts *Mount"),
    "AllocateResponse": ("container_responses *ContainerAllocateResponse",),
    "ContainerDevices": ("resource_name string", "device_ids *string"),
    "ContainerResources": ("name string", "devices *ContainerDevices"),
    "PodResources": ("name string", "namespace string", "containers *ContainerResources"),
    "ListPodResourcesResponse": ("pod_resources *PodResources",),
    "PluginInfo": ("type string", "name string", "endpoint string", "supported_versions *string"),
    "RegistrationStatus": ("plugin_registered bool", "error string"),
    "Claim": ("namespace string", "uid string", "name string"),
    "ClaimsRequest": ("claims *Claim",),
    "PreparedDevice": ("request_names *string", "pool_name string", "device_name string", "cdi_device_ids *string"),
    "PreparedClaim": ("devices *PreparedDevice", "error string"),
    "PreparedEntry": ("key string", "value PreparedClaim"),
    "PrepareResponse": ("claims *PreparedEntry",),
    "UnpreparedClaim": ("error string",),
    "UnpreparedEntry": ("key string", "value UnpreparedClaim"),
    "UnprepareResponse": ("claims *UnpreparedEntry",),
}
"""By their names: each field with its type, ``*`` for a repeated one, numbered from 1 in their order."""


def _classes() -> SimpleNamespace:
    file = descriptor_pb2.FileDescriptorProto(name="millpond/kubelet.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate((text.split() for text in fields), start=1):
            label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            kind = kind.removeprefix("*")
            if kind in _SCALARS:
                added.type = _SCALARS[kind]
            else:
                added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _MESSAGES}
    return SimpleNamespace(**{name: message_factory.GetMessageClass(each) for name, each in found.items()})


messages: Final = _classes()
"""The class of each message, by its name."""


def answering(answer: Callable[[Any], Awaitable[Any]], request: Any, answered: Any) -> Handler:
    """A call of one request and one answer, as the library looks it up."""

    async def handle(stream: Stream[Any, Any]) -> None:
        asked = await stream.recv_message()
        assert asked is not None, "a call of one request has it"
        await stream.send_message(await answer(asked))

    return Handler(handle, Cardinality.UNARY_UNARY, request, answered)
