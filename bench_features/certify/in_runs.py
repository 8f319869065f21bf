"""The certificates of a run's hosts: their ids go into the header of its stats file, whether they hold or not."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from bench_common.errors import UsageError
from bench_common.host_info import Fact
from bench_common.stats.block_types import StoredCertificate
from bench_master.run_extension import RunExtension

log = logging.getLogger(__name__)


class CertifiedOptions(Struct, frozen=True):
    """There are none."""


class CertifiedRuns(RunExtension):
    """Looks for the certificate of each host as its run begins."""

    Options = CertifiedOptions

    def certificates(self, hosts: Mapping[str, Mapping[str, Fact]]) -> Sequence[StoredCertificate]:
        """Return the certificate of each host that has one, with why it does not hold any more."""
        from bench_features.certify.certificate import kept_file, load, machine_of

        found: list[StoredCertificate] = []
        for host, fingerprint in hosts.items():
            machine = machine_of(fingerprint)
            try:
                known = load(kept_file(str(fingerprint.get("hostname") or host), machine))
            except UsageError as error:
                log.warning("%s", error)
                continue
            if known is not None:
                from bench_features.certify.page import clause

                says, void = clause(known), known.why_void(machine)
                found.append({"host": host, "id": known.id, "created": known.created, "says": says, "void": void})
        return found


CERTIFIED: Final = CertifiedRuns()
