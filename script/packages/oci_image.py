"""Builds the OCI image: Weighbridge in /opt/weighbridge on the base system that its own images are made from.

Called as ``oci_image.py SOURCE WHEELS OUT EXTRAS`` as root, with SOURCE_DATE_EPOCH set and SOURCE on PYTHONPATH.
SOURCE is the clone's files, WHEELS a folder with the wheels of Weighbridge and of all that it needs, for the Python
that runs this. No registry is asked and no engine is needed: the base system comes from a mirror of the distribution
(``dockerfiles/base/make-rootfs``), and its Python from there, too.

The archive is an OCI image layout (image-layout.md of the OCI image specification 1.1) that also has the
``manifest.json`` of ``docker save``. So ``docker load`` of every version, ``podman load`` and ``ctr images import``
read it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from base_system import unpack
from environment import HOME, PROGRAMS, PYTHON, install, run

from bench_common.errors import InfrastructureError

NAME: Final = "weighbridge/weighbridge"
FOLDER: Final = "/work"
"""The directory that programs start in: stats files of a run are below it."""
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""The names that Go has for them, which OCI uses."""
UNWANTED: Final = ("var/lib/apt/lists", "var/cache/apt", "var/cache/debconf", "var/log", "tmp")
"""What a package manager leaves: large, or with times of the build in it."""
CHUNK_BYTES: Final = 1 << 20


def fill(root: Path, source: Path, wheels: Path, extras: str) -> str:
    """Make the root file system; return where its base is from."""
    base = unpack(root, source, PYTHON, "libstdc++6")
    install(root, wheels, extras)
    for program in PROGRAMS:
        (root / "usr/local/bin" / program).symlink_to(f"/{HOME}/bin/{program}")
    (root / FOLDER[1:]).mkdir()
    for folder in UNWANTED:
        for path in (root / folder).rglob("*"):
            if not path.is_dir():
                path.unlink()
    for cache in [*root.rglob("__pycache__")]:
        shutil.rmtree(cache)
    return str(base)


def pack(root: Path, blobs: Path, epoch: int) -> tuple[dict[str, Any], str]:
    """Write the one layer of the image; return its descriptor and the digest of the uncompressed layer."""
    layer = blobs.parent / "layer.tar"
    run(
        *("tar", "--sort=name", "--numeric-owner", f"--mtime=@{epoch}", "--clamp-mtime", "--one-file-system"),
        *("--format=posix", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"),
        *("-cf", layer, "-C", root, "."),
    )
    with layer.open("rb") as stream:
        plain = hashlib.file_digest(stream, "sha256").hexdigest()
    packed = blobs / "layer"
    with (
        layer.open("rb") as stream,
        packed.open("wb") as out,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=out, mtime=0) as writer,
    ):
        shutil.copyfileobj(stream, writer, CHUNK_BYTES)
    layer.unlink()
    with packed.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    packed.rename(blobs / digest)
    return describe("layer.v1.tar+gzip", digest, (blobs / digest).stat().st_size), f"sha256:{plain}"


def describe(kind: str, digest: str, size: int) -> dict[str, Any]:
    """Return the descriptor of a blob."""
    return {
        "mediaType": f"application/vnd.oci.image.{kind}",
        "digest": f"sha256:{digest}",
        "size": size,
    }


def put(blobs: Path, kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """Write a document as a blob; return its descriptor."""
    content = encode(document)
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return describe(kind, digest, len(content))


def encode(document: Any) -> bytes:
    """Return the bytes of a JSON document, the same for the same document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def configuration(version: str, layer: str, base: str, epoch: int) -> dict[str, Any]:
    """Return what the image says of itself and of the processes that start from it."""
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": ["weighbridge"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "WorkingDir": FOLDER,
            "Labels": {
                "org.opencontainers.image.title": "weighbridge",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "weighbridge.image.source": base,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": created, "created_by": "script/release image", "comment": base}],
    }


def build(source: Path, wheels: Path, out: Path, extras: str, epoch: int) -> Path:
    """Write the archive into `out`; return its path."""
    (own,) = wheels.glob("weighbridge-*.whl")
    version = own.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="image-", dir=out) as name:
        root, blobs = Path(name, "root"), Path(name, "blobs")
        root.mkdir()
        blobs.mkdir()
        base = fill(root, source, wheels, extras)
        layer, plain = pack(root, blobs, epoch)
        shutil.rmtree(root)
        config = put(blobs, "config.v1+json", configuration(version, plain, base, epoch))
        manifest = put(
            blobs,
            "manifest.v1+json",
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config,
                "layers": [layer],
            },
        )
        names = [f"{NAME}:{version}", f"{NAME}:latest"]
        index = [
            manifest
            | {
                "annotations": {
                    "io.containerd.image.name": f"docker.io/{each}",
                    "org.opencontainers.image.ref.name": each.partition(":")[2],
                }
            }
            for each in names
        ]
        for_docker = {"Config": place(config), "RepoTags": names, "Layers": [place(layer)]}
        files = {
            "oci-layout": {"imageLayoutVersion": "1.0.0"},
            "index.json": {"schemaVersion": 2, "manifests": index},
            "manifest.json": [for_docker],
        }
        archive = out / f"weighbridge-{version}-image-{ARCHITECTURES.get(os.uname().machine, os.uname().machine)}.tar"
        with tarfile.open(archive, "w") as writer:
            for each, document in files.items():
                add(writer, each, BytesIO(encode(document)), len(encode(document)), epoch)
            for descriptor in (manifest, config, layer):
                with (blobs / descriptor["digest"].partition(":")[2]).open("rb") as content:
                    add(writer, place(descriptor), content, descriptor["size"], epoch)
    return archive


def place(descriptor: dict[str, Any]) -> str:
    """Return where a blob is in the archive."""
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def add(writer: tarfile.TarFile, name: str, content: Any, size: int, epoch: int) -> None:
    """Add a file with the time `epoch` that belongs to root."""
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, epoch, 0o644
    writer.addfile(member, content)


if __name__ == "__main__":
    os.umask(0o022)
    source, wheels, out = map(Path, sys.argv[1:4])
    try:
        print(build(source, wheels, out, sys.argv[4], int(os.environ["SOURCE_DATE_EPOCH"])).name)
    except InfrastructureError as error:
        raise SystemExit(str(error)) from error
