"""runc: the runtime of Docker and containerd, without them."""

from __future__ import annotations

from typing import ClassVar

from bench_worker.engines.oci.engine import OciEngine


class RuncEngine(OciEngine):
    """`runc <https://github.com/opencontainers/runc>`_, see `bench_worker.engines.oci.engine`."""

    name: ClassVar[str] = "runc"
    advice: ClassVar[str] = "install it (`apt-get install runc`; it comes with docker.io)"
