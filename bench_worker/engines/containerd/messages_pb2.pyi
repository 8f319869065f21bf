import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VersionResponse(_message.Message):
    __slots__ = ("version", "revision")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    version: str
    revision: str
    def __init__(self, version: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("id", "labels", "image", "runtime", "spec", "snapshotter", "snapshot_key", "created_at")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_KEY_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    labels: _containers.ScalarMap[str, str]
    image: str
    runtime: Runtime
    spec: _any_pb2.Any
    snapshotter: str
    snapshot_key: str
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., image: _Optional[str] = ..., runtime: _Optional[_Union[Runtime, _Mapping]] = ..., spec: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., snapshotter: _Optional[str] = ..., snapshot_key: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ContainerRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ContainerMessage(_message.Message):
    __slots__ = ("container",)
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    container: Container
    def __init__(self, container: _Optional[_Union[Container, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, filters: _Optional[_Iterable[str]] = ...) -> None: ...

class ListContainersResponse(_message.Message):
    __slots__ = ("containers",)
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    def __init__(self, containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ...) -> None: ...

class Mount(_message.Message):
    __slots__ = ("type", "source", "target", "options")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    type: str
    source: str
    target: str
    options: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, type: _Optional[str] = ..., source: _Optional[str] = ..., target: _Optional[str] = ..., options: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTaskRequest(_message.Message):
    __slots__ = ("container_id", "rootfs", "stdin", "stdout", "stderr")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    ROOTFS_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    rootfs: _containers.RepeatedCompositeFieldContainer[Mount]
    stdin: str
    stdout: str
    stderr: str
    def __init__(self, container_id: _Optional[str] = ..., rootfs: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., stdin: _Optional[str] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ...) -> None: ...

class TaskPid(_message.Message):
    __slots__ = ("container_id", "pid")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    pid: int
    def __init__(self, container_id: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class ProcessRequest(_message.Message):
    __slots__ = ("container_id", "exec_id")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    exec_id: str
    def __init__(self, container_id: _Optional[str] = ..., exec_id: _Optional[str] = ...) -> None: ...

class KillRequest(_message.Message):
    __slots__ = ("container_id", "exec_id", "signal", "all")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    exec_id: str
    signal: int
    all: bool
    def __init__(self, container_id: _Optional[str] = ..., exec_id: _Optional[str] = ..., signal: _Optional[int] = ..., all: bool = ...) -> None: ...

class ExecProcessRequest(_message.Message):
    __slots__ = ("container_id", "stdout", "stderr", "spec", "exec_id")
    CONTAINER_ID_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    EXEC_ID_FIELD_NUMBER: _ClassVar[int]
    container_id: str
    stdout: str
    stderr: str
    spec: _any_pb2.Any
    exec_id: str
    def __init__(self, container_id: _Optional[str] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ..., spec: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., exec_id: _Optional[str] = ...) -> None: ...

class WaitResponse(_message.Message):
    __slots__ = ("exit_status",)
    EXIT_STATUS_FIELD_NUMBER: _ClassVar[int]
    exit_status: int
    def __init__(self, exit_status: _Optional[int] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, filters: _Optional[_Iterable[str]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("timestamp", "id", "data")
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    timestamp: _timestamp_pb2.Timestamp
    id: str
    data: _any_pb2.Any
    def __init__(self, timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., id: _Optional[str] = ..., data: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class MetricsResponse(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Pids(_message.Message):
    __slots__ = ("current", "limit")
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    current: int
    limit: int
    def __init__(self, current: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class CgroupV1Metrics(_message.Message):
    __slots__ = ("pids", "cpu", "memory")
    class Cpu(_message.Message):
        __slots__ = ("usage", "throttling")
        class Usage(_message.Message):
            __slots__ = ("total", "kernel", "user")
            TOTAL_FIELD_NUMBER: _ClassVar[int]
            KERNEL_FIELD_NUMBER: _ClassVar[int]
            USER_FIELD_NUMBER: _ClassVar[int]
            total: int
            kernel: int
            user: int
            def __init__(self, total: _Optional[int] = ..., kernel: _Optional[int] = ..., user: _Optional[int] = ...) -> None: ...
        class Throttling(_message.Message):
            __slots__ = ("periods", "throttled_periods", "throttled_time")
            PERIODS_FIELD_NUMBER: _ClassVar[int]
            THROTTLED_PERIODS_FIELD_NUMBER: _ClassVar[int]
            THROTTLED_TIME_FIELD_NUMBER: _ClassVar[int]
            periods: int
            throttled_periods: int
            throttled_time: int
            def __init__(self, periods: _Optional[int] = ..., throttled_periods: _Optional[int] = ..., throttled_time: _Optional[int] = ...) -> None: ...
        USAGE_FIELD_NUMBER: _ClassVar[int]
        THROTTLING_FIELD_NUMBER: _ClassVar[int]
        usage: CgroupV1Metrics.Cpu.Usage
        throttling: CgroupV1Metrics.Cpu.Throttling
        def __init__(self, usage: _Optional[_Union[CgroupV1Metrics.Cpu.Usage, _Mapping]] = ..., throttling: _Optional[_Union[CgroupV1Metrics.Cpu.Throttling, _Mapping]] = ...) -> None: ...
    class Memory(_message.Message):
        __slots__ = ("cache", "rss", "mapped_file", "usage", "swap")
        class Entry(_message.Message):
            __slots__ = ("limit", "usage", "max", "failcnt")
            LIMIT_FIELD_NUMBER: _ClassVar[int]
            USAGE_FIELD_NUMBER: _ClassVar[int]
            MAX_FIELD_NUMBER: _ClassVar[int]
            FAILCNT_FIELD_NUMBER: _ClassVar[int]
            limit: int
            usage: int
            max: int
            failcnt: int
            def __init__(self, limit: _Optional[int] = ..., usage: _Optional[int] = ..., max: _Optional[int] = ..., failcnt: _Optional[int] = ...) -> None: ...
        CACHE_FIELD_NUMBER: _ClassVar[int]
        RSS_FIELD_NUMBER: _ClassVar[int]
        MAPPED_FILE_FIELD_NUMBER: _ClassVar[int]
        USAGE_FIELD_NUMBER: _ClassVar[int]
        SWAP_FIELD_NUMBER: _ClassVar[int]
        cache: int
        rss: int
        mapped_file: int
        usage: CgroupV1Metrics.Memory.Entry
        swap: CgroupV1Metrics.Memory.Entry
        def __init__(self, cache: _Optional[int] = ..., rss: _Optional[int] = ..., mapped_file: _Optional[int] = ..., usage: _Optional[_Union[CgroupV1Metrics.Memory.Entry, _Mapping]] = ..., swap: _Optional[_Union[CgroupV1Metrics.Memory.Entry, _Mapping]] = ...) -> None: ...
    PIDS_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    pids: Pids
    cpu: CgroupV1Metrics.Cpu
    memory: CgroupV1Metrics.Memory
    def __init__(self, pids: _Optional[_Union[Pids, _Mapping]] = ..., cpu: _Optional[_Union[CgroupV1Metrics.Cpu, _Mapping]] = ..., memory: _Optional[_Union[CgroupV1Metrics.Memory, _Mapping]] = ...) -> None: ...

class CgroupV2Metrics(_message.Message):
    __slots__ = ("pids", "cpu", "memory")
    class Cpu(_message.Message):
        __slots__ = ("usage_usec", "user_usec", "system_usec", "nr_periods", "nr_throttled", "throttled_usec")
        USAGE_USEC_FIELD_NUMBER: _ClassVar[int]
        USER_USEC_FIELD_NUMBER: _ClassVar[int]
        SYSTEM_USEC_FIELD_NUMBER: _ClassVar[int]
        NR_PERIODS_FIELD_NUMBER: _ClassVar[int]
        NR_THROTTLED_FIELD_NUMBER: _ClassVar[int]
        THROTTLED_USEC_FIELD_NUMBER: _ClassVar[int]
        usage_usec: int
        user_usec: int
        system_usec: int
        nr_periods: int
        nr_throttled: int
        throttled_usec: int
        def __init__(self, usage_usec: _Optional[int] = ..., user_usec: _Optional[int] = ..., system_usec: _Optional[int] = ..., nr_periods: _Optional[int] = ..., nr_throttled: _Optional[int] = ..., throttled_usec: _Optional[int] = ...) -> None: ...
    class Memory(_message.Message):
        __slots__ = ("anon", "file", "usage", "usage_limit")
        ANON_FIELD_NUMBER: _ClassVar[int]
        FILE_FIELD_NUMBER: _ClassVar[int]
        USAGE_FIELD_NUMBER: _ClassVar[int]
        USAGE_LIMIT_FIELD_NUMBER: _ClassVar[int]
        anon: int
        file: int
        usage: int
        usage_limit: int
        def __init__(self, anon: _Optional[int] = ..., file: _Optional[int] = ..., usage: _Optional[int] = ..., usage_limit: _Optional[int] = ...) -> None: ...
    PIDS_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    pids: Pids
    cpu: CgroupV2Metrics.Cpu
    memory: CgroupV2Metrics.Memory
    def __init__(self, pids: _Optional[_Union[Pids, _Mapping]] = ..., cpu: _Optional[_Union[CgroupV2Metrics.Cpu, _Mapping]] = ..., memory: _Optional[_Union[CgroupV2Metrics.Memory, _Mapping]] = ...) -> None: ...

class PrepareSnapshotRequest(_message.Message):
    __slots__ = ("snapshotter", "key", "parent")
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    snapshotter: str
    key: str
    parent: str
    def __init__(self, snapshotter: _Optional[str] = ..., key: _Optional[str] = ..., parent: _Optional[str] = ...) -> None: ...

class SnapshotRequest(_message.Message):
    __slots__ = ("snapshotter", "key")
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    snapshotter: str
    key: str
    def __init__(self, snapshotter: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class MountsResponse(_message.Message):
    __slots__ = ("mounts",)
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    def __init__(self, mounts: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ...) -> None: ...

class CommitSnapshotRequest(_message.Message):
    __slots__ = ("snapshotter", "name", "key")
    SNAPSHOTTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    snapshotter: str
    name: str
    key: str
    def __init__(self, snapshotter: _Optional[str] = ..., name: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class SnapshotInfo(_message.Message):
    __slots__ = ("name", "parent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    parent: str
    def __init__(self, name: _Optional[str] = ..., parent: _Optional[str] = ...) -> None: ...

class StatSnapshotResponse(_message.Message):
    __slots__ = ("info",)
    INFO_FIELD_NUMBER: _ClassVar[int]
    info: SnapshotInfo
    def __init__(self, info: _Optional[_Union[SnapshotInfo, _Mapping]] = ...) -> None: ...

class Descriptor(_message.Message):
    __slots__ = ("media_type", "digest", "size")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    digest: str
    size: int
    def __init__(self, media_type: _Optional[str] = ..., digest: _Optional[str] = ..., size: _Optional[int] = ...) -> None: ...

class ApplyRequest(_message.Message):
    __slots__ = ("diff", "mounts")
    DIFF_FIELD_NUMBER: _ClassVar[int]
    MOUNTS_FIELD_NUMBER: _ClassVar[int]
    diff: Descriptor
    mounts: _containers.RepeatedCompositeFieldContainer[Mount]
    def __init__(self, diff: _Optional[_Union[Descriptor, _Mapping]] = ..., mounts: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ...) -> None: ...

class ApplyResponse(_message.Message):
    __slots__ = ("applied",)
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    applied: Descriptor
    def __init__(self, applied: _Optional[_Union[Descriptor, _Mapping]] = ...) -> None: ...

class DiffRequest(_message.Message):
    __slots__ = ("left", "right", "media_type", "ref", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    left: _containers.RepeatedCompositeFieldContainer[Mount]
    right: _containers.RepeatedCompositeFieldContainer[Mount]
    media_type: str
    ref: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, left: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., right: _Optional[_Iterable[_Union[Mount, _Mapping]]] = ..., media_type: _Optional[str] = ..., ref: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DiffResponse(_message.Message):
    __slots__ = ("diff",)
    DIFF_FIELD_NUMBER: _ClassVar[int]
    diff: Descriptor
    def __init__(self, diff: _Optional[_Union[Descriptor, _Mapping]] = ...) -> None: ...

class ReadContentRequest(_message.Message):
    __slots__ = ("digest", "offset", "size")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    offset: int
    size: int
    def __init__(self, digest: _Optional[str] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class ReadContentResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class WriteContentRequest(_message.Message):
    __slots__ = ("action", "ref", "total", "expected", "offset", "data", "labels")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STAT: _ClassVar[WriteContentRequest.Action]
        WRITE: _ClassVar[WriteContentRequest.Action]
        COMMIT: _ClassVar[WriteContentRequest.Action]
    STAT: WriteContentRequest.Action
    WRITE: WriteContentRequest.Action
    COMMIT: WriteContentRequest.Action
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACTION_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    action: WriteContentRequest.Action
    ref: str
    total: int
    expected: str
    offset: int
    data: bytes
    labels: _containers.ScalarMap[str, str]
    def __init__(self, action: _Optional[_Union[WriteContentRequest.Action, str]] = ..., ref: _Optional[str] = ..., total: _Optional[int] = ..., expected: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WriteContentResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class Image(_message.Message):
    __slots__ = ("name", "labels", "target")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.ScalarMap[str, str]
    target: Descriptor
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., target: _Optional[_Union[Descriptor, _Mapping]] = ...) -> None: ...

class ImageRequest(_message.Message):
    __slots__ = ("name", "sync")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    name: str
    sync: bool
    def __init__(self, name: _Optional[str] = ..., sync: bool = ...) -> None: ...

class ImageMessage(_message.Message):
    __slots__ = ("image",)
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    image: Image
    def __init__(self, image: _Optional[_Union[Image, _Mapping]] = ...) -> None: ...

class UpdateImageRequest(_message.Message):
    __slots__ = ("image", "update_mask")
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    image: Image
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, image: _Optional[_Union[Image, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class ListImagesResponse(_message.Message):
    __slots__ = ("images",)
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    images: _containers.RepeatedCompositeFieldContainer[Image]
    def __init__(self, images: _Optional[_Iterable[_Union[Image, _Mapping]]] = ...) -> None: ...

class CreateLeaseRequest(_message.Message):
    __slots__ = ("id", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteLeaseRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...
