"""youki: a runtime in Rust."""

from __future__ import annotations

from typing import ClassVar

from bench_worker.engines.oci import OciEngine


class YoukiEngine(OciEngine):
    """`youki <https://github.com/youki-dev/youki>`_, see `bench_worker.engines.oci`."""

    name: ClassVar[str] = "youki"
    advice: ClassVar[str] = "install it (`script/engines youki`, or `cargo install youki --locked --features v1`)"
