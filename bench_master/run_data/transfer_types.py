"""What jobs moved that do one operation each, as declared types: a part of the document, see `report_types`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct


class TransferReport(Struct, frozen=True):
    """What one operation for objects of one class transferred."""

    OMIT_NONE: ClassVar = frozenset(("first_byte_error_s",))

    per_s: float | None
    """Successful operations per second of the measured trials."""
    content_bytes: int
    """Bytes of content that successful ones sent or received."""
    mb_per_s: float | None
    """These per second of the measured trials, in 1,000,000 bytes."""
    retries: int
    """Tries that failed before the last one, also of operations that failed."""
    redrawn: int
    """How many of them took the place of another operation, for want of an object."""
    first_byte_error_s: float | None
    """Of a first byte: the most by which it may be stamped late; None of whole operations."""
    slowest_transaction: str | None
    """What the store called the request of the slowest job; None if it did not name it."""


class FirstByteReport(Struct, frozen=True):
    """The time to the first byte of an answer."""

    INLINE: ClassVar = {"percentiles_s": "{}_s"}

    n: int
    """Successful operations."""
    mean_s: float | None
    """Mean time."""
    percentiles_s: Mapping[str, float | None]
    """Percentiles by name."""
    max_s: float | None
    """Longest time."""
    error_s: float | None
    """The most by which one may be stamped late; None where that is not known."""


class SecondReport(Struct, frozen=True):
    """One whole second of a measured trial."""

    trial: int
    """The trial."""
    second: int
    """How many seconds after the trial's begin it began."""
    per_s: float
    """Operations that were done in it."""
    mb_per_s: float | None
    """Their content, in 1,000,000 bytes; None where a size is unknown."""


class SecondsReport(Struct, frozen=True):
    """The whole seconds of the measured trials, by the operations that were done in each."""

    n: int
    """How many seconds."""
    fastest: SecondReport
    """The one with the most operations."""
    median: SecondReport
    """The one in the middle; of an even number the slower one."""
    slowest: SecondReport
    """The one with the fewest."""


class StoreOperationReport(Struct, frozen=True):
    """One operation over objects of all classes."""

    INLINE: ClassVar = {"percentiles_s": "{}_s"}

    n: int
    """Successful operations."""
    errors: int
    """Failed operations."""
    error_kinds: Mapping[str, int]
    """Failed operations by the kind of failure, the most frequent first."""
    retries: int
    """Tries that failed before the last one, also of operations that failed."""
    per_s: float | None
    """Successful operations per second of the measured trials."""
    content_bytes: int
    """Bytes of content that successful ones sent or received."""
    mb_per_s: float | None
    """These per second of the measured trials, in 1,000,000 bytes; None where a size is unknown."""
    mean_s: float | None
    """Mean duration."""
    min_s: float | None
    """Shortest duration."""
    percentiles_s: Mapping[str, float | None]
    """Percentiles by name."""
    max_s: float | None
    """Longest duration."""
    percentiles_exact: bool
    """Whether every percentile is a recorded value; otherwise within 0.2 % of it."""
    p99_marked: bool
    """Whether p99 comes from fewer than 1,000 values."""
    first_byte: FirstByteReport | None
    """The time to the first byte of the answer; None of an operation without content in its answer."""
    seconds: SecondsReport | None
    """Its fastest, median and slowest second; None with fewer than three whole seconds."""


class EndpointOperationReport(Struct, frozen=True):
    """One operation at one endpoint of a store."""

    INLINE: ClassVar = {"percentiles_s": "{}_s"}

    n: int
    """Successful operations."""
    errors: int
    """Failed operations."""
    error_kinds: Mapping[str, int]
    """Failed operations by the kind of failure, the most frequent first."""
    per_s: float | None
    """Successful operations per second of the measured trials."""
    mb_per_s: float | None
    """Bytes of content per second of the measured trials, in 1,000,000 bytes; None where a size is unknown."""
    percentiles_s: Mapping[str, float | None]
    """Percentiles by name, within 0.2 %."""
    max_s: float | None
    """Longest duration."""
    first_byte: FirstByteReport | None
    """The time to the first byte of the answer; None of an operation without content in its answer."""


class EndpointReport(Struct, frozen=True):
    """The operations of one endpoint of a store."""

    INLINE: ClassVar = {"percentiles_s": "{}_s"}

    endpoint: int
    """Its place among the endpoints, from 0."""
    url: str | None
    """Its URL; None where nobody told it."""
    n: int
    """Successful operations."""
    errors: int
    """Failed operations: those whose last try went there."""
    retries: int
    """Tries that failed before the last one, of operations whose last try went there."""
    per_s: float | None
    """Successful operations per second of the measured trials."""
    mb_per_s: float | None
    """Bytes of content per second of the measured trials, in 1,000,000 bytes."""
    mean_s: float | None
    """Mean duration."""
    percentiles_s: Mapping[str, float | None]
    """Percentiles by name, within 0.2 %."""
    max_s: float | None
    """Longest duration."""
    operations: Mapping[str, EndpointOperationReport] = {}
    """Each operation over objects of all classes, by name."""


class StoreSeriesReport(Struct, frozen=True):
    """What one operation at one endpoint did in one trial, interval by interval since the trial's begin."""

    trial: int
    """The trial."""
    operation: str
    """The operation, over objects of all classes."""
    endpoint: int
    """The place of the endpoint among the endpoints, from 0."""
    done: Sequence[int]
    """Successful operations that ended in each interval."""
    failed: Sequence[int]
    """Failed ones."""
    content_bytes: Sequence[int]
    """Bytes of content of the successful ones, counted where the operation ended."""


class TransfersReport(Struct, frozen=True):
    """What the jobs of a treatment transferred, where each does one of its operations."""

    content_bytes: int
    """Bytes of content that successful operations sent or received."""
    mb_per_s: float | None
    """These per second of the measured trials, in 1,000,000 bytes."""
    retries: int
    """Tries that failed before the last one, also of operations that failed."""
    redrawn: int
    """How many jobs did another operation than the one drawn, for want of an object."""
    operations: Mapping[str, TransferReport]
    """Each operation by name, also those of first bytes, which move nothing themselves."""
    endpoints: Sequence[EndpointReport]
    """The endpoints that were used."""
    by_operation: Mapping[str, StoreOperationReport] = {}
    """Each operation over objects of all classes, by name, such as ``read``."""
    seconds: SecondsReport | None = None
    """The fastest, median and slowest second of all operations; None with fewer than three whole seconds."""
    interval_s: float = 1.0
    """The length of an interval of `series`."""
    series: Sequence[StoreSeriesReport] = ()
    """The course of the measured trials, by trial, operation and endpoint."""
