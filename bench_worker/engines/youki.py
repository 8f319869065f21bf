"""youki: a runtime in Rust."""

from __future__ import annotations

from typing import ClassVar

from bench_worker.engines.criu import OPERATIONS
from bench_worker.engines.oci.engine import OciEngine


class YoukiEngine(OciEngine):
    """`youki <https://github.com/youki-dev/youki>`_, see `bench_worker.engines.oci.engine`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - OPERATIONS
    lacks: ClassVar[dict[str, str]] = {
        **OciEngine.lacks,
        **dict.fromkeys(OPERATIONS, "youki restores nothing that it has saved"),
    }
    name: ClassVar[str] = "youki"
    advice: ClassVar[str] = "install it (`script/engines youki`, or `cargo install youki --locked --features v1`)"
