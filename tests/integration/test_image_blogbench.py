"""The Dockerfile of blogbench takes it from whatever distribution is named, and says what is wrong where it cannot.

Built under names of the tests' own: an image called as the real one would be taken for it by every later run here.
"""

import io
import tarfile
import uuid

import docker
import pytest
from busybox_image import layer, require_docker
from deadlines import START_S

from bench_worker.images.build import all_recipes, in_build_order

pytestmark = pytest.mark.docker

APK = """\
#!/bin/sh
[ "$*" = "add --no-cache blogbench" ] || { echo "no package $3"; exit 1; }
echo '#!/bin/sh' > /bin/blogbench
echo 'echo blogbench 1.2' >> /bin/blogbench
busybox chmod 755 /bin/blogbench
"""


@pytest.fixture(scope="module")
def client():
    require_docker()
    opened = docker.APIClient(timeout=START_S)
    yield opened
    opened.close()


@pytest.fixture
def distribution(client):
    """A function that makes a tiny distribution with such a program `apk`; it is gone afterwards."""
    made = []

    def make(apk):
        content = io.BytesIO(layer())
        with tarfile.open(fileobj=content, mode="a") as archive:
            for name, text, mode in (("bin/apk", apk, 0o755), ("bin/mkdir", "", 0)):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(text), mode
                if name == "bin/mkdir":
                    entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry, io.BytesIO(text.encode()))
        name = f"weighbridge-test/distribution:{uuid.uuid4().hex[:12]}"
        repository, _, tag = name.partition(":")
        client.import_image_from_data(content.getvalue(), repository=repository, tag=tag)
        made.append(name)
        return name

    yield make
    for name in made:
        client.remove_image(name, force=True)


def build(client, **arguments):
    """Build the folder with these arguments; return the image's name and what the builder said."""
    name = f"weighbridge-test/blogbench:{uuid.uuid4().hex[:12]}"
    folder = str(all_recipes()["blogbench"].folder)
    output_text = client.build(
        path=folder, tag=name, buildargs=arguments, network_mode="host", rm=True, forcerm=True, decode=True
    )
    lines = list(output_text)
    return name, "".join(line.get("stream", "") + line.get("error", "") for line in lines)


def test_a_distribution_that_has_it_gives_an_image(client, distribution):
    """The package manager that is there is used, and the command is on PATH afterwards."""
    name, output_text = build(client, DISTRIBUTION=distribution(APK))
    try:
        assert client.inspect_image(name)["Config"]["WorkingDir"] == "/srv/blogbench", output_text
    finally:
        client.remove_image(name, force=True)


@pytest.mark.parametrize(
    ("apk", "package", "message"),
    [
        (APK, "blogbench-ng", "no package blogbench-ng"),
        ("#!/bin/sh\nexit 0\n", "blogbench", "the package blogbench has no command blogbench"),
    ],
)
def test_a_package_that_the_distribution_lacks_is_reported(client, distribution, apk, package, message):
    """The build fails with a plain reason, and there is no image."""
    name, output_text = build(client, DISTRIBUTION=distribution(apk), PACKAGE=package)
    assert message in output_text
    with pytest.raises(docker.errors.ImageNotFound):
        client.inspect_image(name)


def test_it_is_built_only_on_request():
    """Who builds all images does not need a distribution that has it."""
    recipes = all_recipes()
    assert "blogbench" not in {recipe.name for recipe in in_build_order([], recipes)}
    assert [recipe.name for recipe in in_build_order(["blogbench"], recipes)] == ["blogbench"]
