"""crun: a runtime in C, podman's usual one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar, Final

from bench_worker.engines.oci import OciEngine
from bench_worker.engines.oci_bundle import Bundle

if TYPE_CHECKING:
    from bench_worker.engines.base import Container


_FORGOTTEN: Final = frozenset({"ulimits", "security_options", "cap_add", "cap_drop"})
"""What it leaves out for a command that is executed beside the container's own."""


class CrunEngine(OciEngine):
    """`crun <https://github.com/containers/crun>`_, see `bench_worker.engines.oci`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - {"stats"}
    lacks: ClassVar[dict[str, str]] = {**OciEngine.lacks, "stats": "crun has no command for it"}
    name: ClassVar[str] = "crun"
    log_option: ClassVar[str] = "file:{}"
    advice: ClassVar[str] = "install it (`apt-get install crun`)"

    def exec_words(self, container: Container, argv: tuple[str, ...]) -> list[str]:
        """Describe the whole process where it is confined: executing a command alone, crun leaves its limits out."""
        settings, bundle = container.settings, container.handle
        if not isinstance(bundle, Bundle) or not settings.given() & _FORGOTTEN:
            return super().exec_words(container, argv)
        config = json.loads(bundle.config.read_text(encoding="utf-8"))
        path = bundle.directory / "process.json"
        path.write_text(json.dumps({**config["process"], "args": list(argv)}), encoding="utf-8")
        return ["--process", str(path), container.name]
