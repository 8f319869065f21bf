"""crun: a runtime in C, podman's usual one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from bench_worker.engines import oci_homes
from bench_worker.engines.native.process import disk_errors
from bench_worker.engines.oci.bundle import Bundle
from bench_worker.engines.oci.engine import OciEngine
from bench_worker.engines.oci_checkpoint import CONFIGURATION

if TYPE_CHECKING:
    from bench_worker.engines.base import Container
    from bench_worker.engines.command_line import Errand


_COVER: Final = ".empty-directory"
"""The folder that newer releases mount over those that a container must not see."""
_USUAL_ROOT: Final = Path("/run/crun")
_FORGOTTEN: Final = frozenset({"ulimits", "security_options", "cap_add", "cap_drop"})
"""What it leaves out for a command that is executed beside the container's own."""


class CrunEngine(OciEngine):
    """`crun <https://github.com/containers/crun>`_, see `bench_worker.engines.oci.engine`."""

    operations: ClassVar[frozenset[str]] = OciEngine.operations - {"stats"}
    lacks: ClassVar[dict[str, str]] = {**OciEngine.lacks, "stats": "crun has no command for it"}
    name: ClassVar[str] = "crun"
    log_option: ClassVar[str] = "file:{}"
    saving_options: ClassVar[tuple[str, ...]] = ("--manage-cgroups-mode=ignore",)
    """Else CRIU saves all groups of a hierarchy in which the container has none of its own, as v2 is beside v1."""
    advice: ClassVar[str] = "install it (`apt-get install crun`)"

    def clear(self, container: Container, errand: Errand) -> None:
        """Say where the folder is that covers others: crun saves it by the name that it has below its usual root."""
        del errand
        bundle, covering = self._bundle(container), oci_homes.STATE_ROOT / self.name / _COVER
        line = f"external mnt[{_USUAL_ROOT / _COVER}]:{covering}\n"
        with disk_errors(time.monotonic_ns()):
            path = bundle.directory / CONFIGURATION
            text = path.read_text(encoding="ascii")
            if covering.exists() and line not in text:
                path.write_text(text + line, encoding="ascii")

    def exec_words(self, container: Container, argv: tuple[str, ...]) -> list[str]:
        """Describe the whole process where it is confined: executing a command alone, crun leaves its limits out."""
        settings, bundle = container.settings, container.handle
        if not isinstance(bundle, Bundle) or not settings.given() & _FORGOTTEN:
            return super().exec_words(container, argv)
        config = json.loads(bundle.config.read_text(encoding="utf-8"))
        path = bundle.directory / "process.json"
        path.write_text(json.dumps({**config["process"], "args": list(argv)}), encoding="utf-8")
        return ["--process", str(path), container.name]
