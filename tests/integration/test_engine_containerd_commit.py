"""Containers of containerd saved as images: what is in them, how large they are, and that they go."""

import pytest
from busybox_image import DockerBench
from deadlines import ANSWER_S, START_S, wait_until
from runtime_bench import FOREVER, RuntimeBench, container_names, kind_of, printed_by, require

from bench_worker.engines.containerd import images as containerd_images
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.containerd.storage import IMAGES

KIB = 1024
WRITING = ("sh", "-c", "dd if=/dev/zero of=/written bs=1024 count=300; echo ready; exec sleep 1000")


@pytest.fixture
def bench(image):
    require(ContainerdEngine)
    made = RuntimeBench(ContainerdEngine, image)
    yield made
    made.close()


def images(bench):
    """Return the names of the images that were made of containers, of any run."""
    names = containerd_images.list_images(bench.engine._api.calls(10))
    return [name for name in names if name.startswith(containerd_images.COMMITTED)]


def writing(bench, **settings):
    """Return a container that has written a file of 300 KiB and goes on."""
    made = bench.running(*WRITING, **settings)
    wait_until(lambda: b"ready" in printed_by(bench.engine, made))
    return made


def test_an_image_has_what_the_container_had_written(bench):
    """A container made of it finds the file, the command and the environment; it is gone with the first one."""
    life = writing(bench, env={"MINE": "yes"})
    done = bench.engine.commit(life, timeout_s=START_S)
    bench.assert_stamped([done])
    [name] = life.images
    copy = bench.container("sh", "-c", "ls -l /written; echo $MINE")
    copy.pulled_image = name
    bench.engine.run(copy, timeout_s=ANSWER_S)
    assert bench.engine.wait(copy, timeout_s=ANSWER_S).exit_code == 0
    message = printed_by(bench.engine, copy).decode()
    assert str(300 * KIB) in message
    assert message.endswith("yes\n")
    bench.engine.remove(copy, timeout_s=ANSWER_S)
    # It goes on, as it was only held still.
    assert bench.engine.exec(life, ("true",), timeout_s=ANSWER_S).exit_code == 0
    bench.engine.remove(life, timeout_s=ANSWER_S)
    assert name not in images(bench)
    assert bench.engine.leftovers(bench.run_id) == []


def test_its_size_is_that_of_the_files_that_changed_as_docker_counts(bench):
    """Also the second time, when more has been written; one that is paused stays so, and one that ended will do."""
    life = writing(bench)
    bench.engine.commit(life, timeout_s=START_S)
    size = bench.engine.committed_bytes(life, timeout_s=ANSWER_S)
    more = ("sh", "-c", "dd if=/dev/zero of=/more bs=1024 count=10")
    assert bench.engine.exec(life, more, timeout_s=ANSWER_S).exit_code == 0
    bench.engine.pause(life, timeout_s=ANSWER_S)
    bench.engine.commit(life, timeout_s=START_S)
    assert kind_of(bench.engine.exec, life, ("true",)) == "conflict"
    bench.engine.unpause(life, timeout_s=ANSWER_S)
    assert bench.engine.committed_bytes(life, timeout_s=ANSWER_S) == size + 10 * KIB
    bench.engine.kill(life, "SIGKILL", timeout_s=ANSWER_S)
    bench.engine.commit(life, timeout_s=START_S)
    assert bench.engine.committed_bytes(life, timeout_s=ANSWER_S) == size + 10 * KIB
    assert len(set(life.images)) == 3
    docker = DockerBench(bench.image)
    try:
        other = docker.running(*WRITING)
        wait_until(lambda: b"ready" in printed_by(docker.engine, other))
        docker.engine.commit(other, timeout_s=START_S)
        assert docker.engine.committed_bytes(other, timeout_s=ANSWER_S) == size
    finally:
        docker.close()


def test_what_was_saved_is_a_leftover_of_its_run(bench):
    """With its label, and where a worker was killed before it could give it one, with its container."""
    labelled, bare = writing(bench), writing(bench)
    for life in (labelled, bare):
        bench.engine.commit(life, timeout_s=START_S)
    calls, name = bench.engine._api.calls(10), bare.images[0]
    image = calls.call(f"{IMAGES}Get", messages.ImageRequest(name=name), messages.ImageMessage).image
    image.labels.clear()
    calls.do(f"{IMAGES}Update", messages.UpdateImageRequest(image=image))
    found = bench.engine.leftovers(bench.run_id)
    assert [item.name for item in found if item.what == "image"] == labelled.images
    assert {item.name for item in found if item.what == "container"} == {labelled.name, bare.name}
    assert bench.engine.leftovers("another-run") == []
    for item in found:
        bench.engine.discard(item)
        bench.engine.discard(item)
    assert bench.engine.leftovers(bench.run_id) == []
    assert not {*labelled.images, *bare.images} & set(images(bench))


def test_an_image_that_has_changed_is_reported(bench):
    """Nothing is put on top of layers that are not those below the container."""
    life = bench.running(*FOREVER)
    life.handle.image = "weighbridge.invalid/image:nosuch"
    assert kind_of(bench.engine.commit, life) == "image-missing"
    assert life.images == []
    assert bench.engine.committed_bytes(life, timeout_s=ANSWER_S) is None
    assert life.name in container_names(bench.engine._api.calls(10))
