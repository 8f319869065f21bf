"""crun: a runtime in C, podman's usual one."""

from __future__ import annotations

from typing import ClassVar

from bench_worker.engines.oci import OciEngine


class CrunEngine(OciEngine):
    """`crun <https://github.com/containers/crun>`_, see `bench_worker.engines.oci`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - {"stats"}
    name: ClassVar[str] = "crun"
    log_option: ClassVar[str] = "file:{}"
    advice: ClassVar[str] = "install it (`apt-get install crun`)"
