"""What workers are asked before they are admitted, and who waits for an answer."""

import hashlib
from types import SimpleNamespace

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from bench_common.errors import EngineUnavailable, ProtocolError
from bench_common.fields import VERSION
from bench_common.messages import FROM_MASTER, Hello, PreflightResult
from bench_common.messages import Preflight as PreflightMessage
from bench_common.requirements import (
    AbsentProgram,
    ImageProgram,
    KindNeed,
    Requirement,
    engines_for_worker,
    kinds_for_worker,
    requirements_for_worker,
)
from bench_common.treatment import (
    ContainerSettings,
    Guest,
    Lifecycle,
    Mount,
    Operation,
    OwnCommand,
    Treatment,
)
from bench_features.objects.common.job import Objects, SizeClass, Sizes
from bench_master.run.message_handler import MessageHandler
from bench_master.run.preflight import (
    HELLO_TIMEOUT_S,
    PREFLIGHT_TIMEOUT_S,
    PreflightCheck,
    check_compatibility,
    measured_programs,
    service_programs,
    started_programs,
)
from bench_worker.engines.base import EngineStatus
from bench_worker.host_part import find_problems
from bench_worker.preflight import PROBE_MAX_AGE_S, EngineCatalog, PreflightChecker
from bench_worker.queries import doctor

OLD = {"usable": False}


def treatment(index, engine="docker", environment=None, **settings):
    return Treatment(index, {}, environment, engine, Lifecycle(()), ContainerSettings(**settings))


def hello(environment="vm"):
    info = {"engines": {"docker": OLD}}
    return Hello(epoch=0, worker_id="w1", environment=environment, slots=1, sent_ns=1, info=info)


def preflight(requirements, engines):
    return PreflightMessage(epoch=0, requirements=requirements, engines=engines)


class Scene:
    """An inquiry with its questions kept and a clock that is set by hand."""

    def __init__(self, *treatments):
        self.asked = []
        self.now = 0.0
        self.inquiry = PreflightCheck(treatments, lambda *asked: self.asked.append(asked), lambda: self.now)

    def hello(self, peer=b"p", identity=None, at_ns=7, doubtful=False):
        return self.inquiry.admits(peer, identity, hello(), at_ns, doubtful=doubtful)

    def answered(self, peer=b"p", identity=None, engines=None):
        return self.inquiry.answered(peer, identity, engines or {})


def test_each_need_of_an_environment_is_asked_for_once():
    """Treatments that differ in limits only need the same; those of other environments, and empty ones, nothing."""
    plan = [
        treatment(0, image="a", cpus=1.0),
        treatment(1, image="a", cpus=2.0),
        treatment(2, image="a", network="n"),
        treatment(3, environment="metal", image="b"),
        treatment(4, engine="native"),
    ]
    assert requirements_for_worker(plan, "vm") == [Requirement("docker", "a"), Requirement("docker", "a", "n")]
    assert requirements_for_worker(plan, "metal") == [
        Requirement("docker", "a"),
        Requirement("docker", "a", "n"),
        Requirement("docker", "b"),
    ]


def test_services_have_needs_and_optional_treatments_have_none():
    """A server's image and network have to be there; what is optional may be left out, so nobody asks for it."""
    served = replace(treatment(0, image="a"), services={"db": ContainerSettings(image="b", network="n")})
    spare = replace(treatment(1, image="c"), optional=True)
    assert requirements_for_worker([served, spare], "vm") == [
        Requirement("docker", "a"),
        Requirement("docker", "b", "n"),
    ]


def test_a_requirement_names_the_settings_that_it_came_from():
    """The engine is asked with these."""
    assert Requirement("docker", "a", None, "syslog").settings == ContainerSettings(image="a", log_driver="syslog")
    volumes = Requirement("docker", volumes=("data",)).settings.storage
    assert volumes == (Mount("volume", "/", "data"),)


@pytest.mark.parametrize(
    "wire", [None, {}, {"engine": None}, {"engine": "x", "image": 3}, {"engine": "x", "more": 1}]
)
def test_a_malformed_requirement_is_refused(wire):
    """Nothing of another shape or type gets to an engine."""
    message = {"type": "preflight", "epoch": 0, "requirements": [wire], "engines": []}
    with pytest.raises(ProtocolError, match="requirements"):
        FROM_MASTER.decode(msgspec.msgpack.encode([VERSION, message]))


def test_a_worker_is_asked_once_and_its_last_hello_waits():
    """However often it repeats its hello; the answer brings the last one back, with the stamp of its arrival."""
    scene = Scene(treatment(0, image="a"))
    assert not scene.hello(at_ns=7)
    assert not scene.hello(at_ns=8)
    assert scene.asked == [(b"p", preflight([Requirement("docker", "a")], ["docker"]))]
    waited, at_ns = scene.answered()
    assert (waited.worker_id, at_ns) == ("w1", 8)
    assert scene.hello()
    assert not scene.hello(peer=b"q")


def test_answers_nobody_asked_for_count_for_nothing():
    """Neither a second one, nor a stranger's, nor one over a connection with another key."""
    scene = Scene(treatment(0, image="a"))
    assert scene.answered() is None
    scene.hello(identity="w1")
    assert scene.answered(identity="w2") is None
    assert scene.answered(identity="w1") is not None
    assert scene.answered(identity="w1") is None


def test_without_needs_nobody_is_asked():
    """Plain processes need nothing, and a no-op run has no treatments here."""
    assert Scene().hello()
    assert Scene(treatment(0, engine="native")).hello()


def test_an_answer_is_awaited_while_the_worker_lives_and_not_for_ever():
    """A worker that has stopped repeating its hello is not waited for; nor is one that takes too long."""
    scene = Scene(treatment(0, image="a"))
    assert not scene.inquiry.pending
    scene.hello()
    assert scene.inquiry.pending
    scene.now = HELLO_TIMEOUT_S
    assert not scene.inquiry.pending
    scene.hello()
    assert scene.inquiry.pending
    scene.now = PREFLIGHT_TIMEOUT_S
    scene.hello()
    assert not scene.inquiry.pending


def test_the_hello_of_a_connection_that_is_gone_is_forgotten():
    """A worker that lost its connection comes back over another one: what it said over the first is not kept."""
    scene = Scene(treatment(0, image="a"))
    scene.hello(peer=b"p")
    scene.now = PREFLIGHT_TIMEOUT_S
    scene.hello(peer=b"q")
    assert scene.answered() is not None
    scene.hello(peer=b"r")
    scene.now = 2 * PREFLIGHT_TIMEOUT_S + 1
    scene.hello(peer=b"q2")
    assert [scene.answered(peer) for peer in (b"q", b"r")] == [None, None]
    assert scene.answered(b"q2") is not None


def test_a_hello_that_is_in_doubt_is_asked_about_its_engines_alone():
    """Whatever the plan needs of others: the answer says how its engines are now, and the hello goes on with that."""
    scene = Scene(treatment(0, engine="native"), treatment(1, environment="metal", engine="runc", image="a"))
    assert not scene.hello(doubtful=True)
    assert scene.asked == [(b"p", preflight([], ["native"]))]
    now = {"native": {"usable": True}}
    waited, _ = scene.answered(engines=now)
    assert waited.info["engines"] == {"docker": OLD, **now}
    assert scene.hello(doubtful=True)
    assert Scene().hello(doubtful=True), "a no-op run has no engines to ask about"


class Engines:
    """What an offer looks at: engines that are usable or not; notes which it was asked for."""

    def __init__(self, **usable):
        self.usable = usable
        self.looked = []
        self.now = 0.0

    def __call__(self, names):
        self.looked.append(names)
        return [
            EngineStatus(name, usable=usable)
            for name, usable in self.usable.items()
            if name in (names or self.usable)
        ]


def test_what_a_worker_offers_is_looked_at_again_when_that_may_have_changed():
    """After a while, or at once where it had a fault; what is not offered is not looked at."""
    engines = Engines(docker=True, podman=False, runc=True)
    offer = EngineCatalog(None, engines, lambda: engines.now)
    told = offer.probe()
    assert {name: status["usable"] for name, status in told.items()} == {
        "docker": True,
        "podman": False,
        "runc": True,
    }
    engines.usable = {"docker": False, "podman": True, "runc": True}
    again = offer.refresh(["docker", "podman", "crun"])
    assert {name: status["usable"] for name, status in again.items()} == {"docker": True, "podman": True}
    engines.now = PROBE_MAX_AGE_S
    again = offer.refresh(["docker", "runc"])
    assert {name: status["usable"] for name, status in again.items()} == {"docker": False, "runc": True}
    assert engines.looked == [None, ["podman"], ["docker", "runc"]]
    assert told["docker"] == again["docker"], "the next hello says it, too"


class Stocked:
    """An engine that has some images."""

    def __init__(self):
        self.closed = False

    def missing(self, settings):
        return [] if settings.image == "here" else [f"no {settings.image}"]

    def forbidden(self, settings):
        return [f"no consent to {mount.source}" for mount in settings.storage]

    def image_digest(self, settings):
        return f"digest of {settings.image}"

    def absent_program(self, settings, wanted):
        return "" if wanted.program == "sleep" else f"image {settings.image} has no {wanted.program}"

    def surroundings(self, settings, wanted):
        return {"side user": wanted.program if settings.image == "here" else "other"}

    def close(self):
        self.closed = True


def test_a_worker_says_what_is_lacking_under_which_engine():
    """One reason each; an engine that is open is not reopened, and all are closed together."""
    opened = []

    def opening(name, _options):
        opened.append((name, Stocked()))
        return opened[-1][1]

    stock = PreflightChecker("w1", opening)
    assert stock.find_missing([Requirement("docker", "here")]) == []
    reasons = stock.find_missing(
        [Requirement("docker", "here"), Requirement("docker", "a"), Requirement("podman", "a")]
    )
    assert reasons == ["engine docker: no a", "engine podman: no a"]
    assert [name for name, _ in opened] == ["docker", "podman"]
    statuses = {"docker": {"usable": True, "details": {"a": "b"}}, "podman": {"usable": True}}
    assert list(stock.forbidden) == []
    stock.find_missing([Requirement("docker", "here", volumes=("theirs",))] * 2)
    assert list(stock.forbidden) == ["engine docker: no consent to theirs"]
    for image in ("here", "a"):
        for program in ("sleep", "sleeep"):
            stock.find_missing([Requirement("docker", image, starts=ImageProgram(program))])
    assert stock.absent == {"engine docker: image here has no sleeep": "sleeep"}, "of an image that is there"
    told = stock.with_digests(statuses)
    assert told["docker"]["details"] == {"a": "b", "image here": "digest of here"}
    assert statuses["docker"]["details"] == {"a": "b"}, "what is kept of an engine is not changed"
    assert told["podman"] == {"usable": True}
    for program in ("sleep", "sleeep"):
        stock.find_missing([Requirement("docker", "here", starts=ImageProgram(program), compared=True)])
    assert stock.with_digests(statuses)["docker"]["details"]["side user"] == "sleep", "not of what is absent"
    stock.close()
    assert stock.absent == {}
    assert stock.with_digests(statuses) == statuses
    assert all(engine.closed for _, engine in opened)


def test_a_worker_names_the_files_of_the_programs_that_jobs_run(tmp_path):
    """By name as the scenario has it, each with path and digest; one that is not there is no reason and has none."""
    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
        program = folder / "tool"
        program.write_text(folder.name)
        program.chmod(0o755)
    digests = [hashlib.sha256(folder.name.encode()).hexdigest() for folder in folders]
    old, new = (Requirement("native", command="tool", search_path=str(folder)) for folder in folders)
    checker = PreflightChecker("w1", lambda _name, _options: Stocked())
    relative = Requirement("native", command="./tool", directory=str(folders[1]))
    gone = Requirement("native", command="gone", search_path=str(tmp_path))
    assert checker.find_missing([old, relative, gone]) == []
    statuses = {"native": {"usable": True, "details": {"a": "b"}}}
    assert checker.with_digests(statuses)["native"]["details"] == {
        "a": "b",
        "program tool": str(folders[0] / "tool"),
        "sha256 tool": digests[0],
        "program ./tool": str(folders[1] / "tool"),
        "sha256 ./tool": digests[1],
    }
    checker.find_missing([old, new])
    details = checker.with_digests(statuses)["native"]["details"]
    assert details["program tool"] == ", ".join(str(folder / "tool") for folder in folders)
    assert details["sha256 tool"] == ", ".join(digests)
    checker.close()
    assert checker.with_digests(statuses) == statuses


def test_an_engine_that_cannot_be_asked_is_a_reason():
    """Whatever it does, the master gets its answer."""

    def gone(_name, _options):
        raise EngineUnavailable("engine 'docker' does not answer")

    def broken(_name, _options):
        raise ValueError("odd")

    assert PreflightChecker("w1", gone).find_missing([Requirement("docker", "a")]) == [
        "engine 'docker' does not answer"
    ]
    assert PreflightChecker("w1", broken).find_missing([Requirement("docker", "a")]) == [
        "engine docker: ValueError: odd"
    ]


def test_what_a_host_lacks_is_no_fault_of_the_plan():
    """A missing image ends the run like a missing engine; what it may not use, or misspells, is the plan's."""
    refused = []
    parts = SimpleNamespace(
        coordinator=SimpleNamespace(roster=None),
        dispatcher=None,
        local_workers=SimpleNamespace(ids=()),
        noop=False,
        plan=SimpleNamespace(
            treatments=(),
            trials=(),
            setting_places={},
            primary=(),
            command_places={"sleeep": "s.yaml:6:12", "made": "<weigh>:1:1"},
        ),
        preflight=SimpleNamespace(answered=lambda *_: (hello(), 0), admits=lambda *_, **__: True),
        recorder=SimpleNamespace(journal=None),
        services=None,
        sockets=SimpleNamespace(admits=lambda _: True),
        hosts=None,
    )
    run = SimpleNamespace(over=False, refuse=lambda reasons, *, unusable: refused.append((reasons, unusable)))
    handler = MessageHandler(parts, run)
    handler.on_control(b"peer", None, PreflightResult(epoch=0, reasons=["no image"], forbidden=[], engines={}), 0)
    handler.on_control(b"peer", None, PreflightResult(epoch=0, reasons=[], forbidden=["not yours"], engines={}), 0)
    absent = [AbsentProgram("sleeep", "no sleeep"), AbsentProgram("made", "no made"), AbsentProgram("x", "no x")]
    told = PreflightResult(epoch=0, reasons=[], forbidden=[], engines={}, absent=absent)
    handler.on_control(b"peer", None, told, 0)
    assert refused == [
        (["worker w1: no image"], True),
        (["worker w1: not yours"], False),
        (["worker w1: s.yaml:6:12: no sleeep", "worker w1: no made", "worker w1: no x"], False),
    ]


def test_a_services_program_is_asked_for_where_it_runs_on_the_host():
    """A native server needs its program there; a container has it from its image, an optional job needs none."""
    job, services = Guest("sysbench-oltp", {}), {"mariadb": ContainerSettings()}
    one = replace(treatment(0, engine="native"), job=job, services=services)
    needs = [Requirement("native", program="mariadbd")]
    measured = [Requirement("native", command="sysbench")]
    assert service_programs([one, replace(one, index=1)], "vm") == needs
    assert service_programs([replace(one, engine="docker"), replace(one, optional=True)], "vm") == []
    assert service_programs([replace(one, environment="metal")], "vm") == []
    scene = Scene(one)
    assert not scene.hello()
    assert scene.asked == [(b"p", preflight([*needs, *measured], ["native"]))]


def test_a_missing_program_of_a_service_is_found_before_the_run(tmp_path, monkeypatch):
    """The reason names the program and the package that has it; where it is installed there is none."""
    monkeypatch.setattr("bench_worker.preflight.SERVER_DIRECTORIES", (str(tmp_path),))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    checker = PreflightChecker("w1", lambda _name, _options: Stocked())
    needs = [Requirement("native", program="mariadbd")]
    reason = "engine native: the service's program mariadbd is not installed here: apt-get install mariadb-server"
    assert checker.find_missing(needs) == [reason]
    program = tmp_path / "mariadbd"
    program.write_text("")
    program.chmod(0o755)
    assert checker.find_missing(needs) == []


def on_objects(index, engine="swift", environment=None, **job):
    """Return a treatment with a job on objects."""
    size = SizeClass("tiny", Sizes("fixed", 1, 1), (("read", 1.0),))
    return replace(treatment(index, engine, environment), job=Objects((size,), **job))


def store_need(engine, **job):
    """Return the need of a store."""
    return KindNeed(engine, to_builtins(Objects((), **job)))


def test_a_kind_that_is_not_installed_is_a_reason_not_to_take_part():
    """The worker names it, and what it has."""
    (reason,) = find_problems([KindNeed("cup", {"kind": "dice", "count": 3})], {})
    assert "unknown kind of job 'dice'" in reason


def test_the_doctor_tells_the_same_of_each_need(monkeypatch):
    """A store has its own check and advice; a kind that is not installed here is a problem, too."""
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    needs = [KindNeed("cup", {"kind": "dice"}), store_need("swift", profile="lab"), store_need("noop")]
    told = list(doctor._kind_findings([msgspec.json.encode(need).decode() for need in needs]))
    assert [(one.check, one.level.value, one.value) for one in told] == [
        ("jobs", "problem", "cup"),
        ("store", "problem", "swift:lab"),
        ("store", "ok", "noop"),
    ]
    assert told[0].finding.startswith("cup: unknown kind of job 'dice'")
    assert told[1].advice.startswith("docs/objects.rst")
    assert told[2].finding == "store noop answers, and accepts the credentials"


def test_a_store_is_logged_in_to_before_a_worker_is_admitted():
    """It is no engine of the host; each store is asked for once, with its policy."""
    plan = [
        on_objects(0, policy="gold", profile="lab"),
        on_objects(1, policy="gold", profile="lab"),
        on_objects(2, "s3", endpoints=("http://a",)),
        on_objects(3, "s3", environment="metal"),
        replace(on_objects(4, "s3", profile="other"), optional=True),
    ]
    needs = [store_need("swift", profile="lab", policy="gold"), store_need("s3", endpoints=("http://a",))]
    assert kinds_for_worker(plan, "vm") == needs
    assert engines_for_worker(plan, "vm") == requirements_for_worker(plan, "vm") == []
    scene = Scene(*plan)
    assert not scene.hello()
    assert [(message.kinds, message.requirements, message.engines) for _, message in scene.asked] == [(needs, [], [])]
    assert scene.answered() is not None
    assert scene.hello()
    fits = check_compatibility(plan[:1], environment="vm", slots=1, info={"engines": {}}, noop=False)
    assert fits.reasons == ()


def test_what_is_wrong_with_a_store_is_told_without_a_credential():
    """Its URL, its credentials, its profile, its name: one reason each."""
    needs = [store_need("swift"), store_need("s3"), store_need("swift", profile="lab"), store_need("swfit")]
    variables = {
        "HOME": "/nonexistent",
        "ST_AUTH": "http://127.0.0.1:9/auth/v1.0",
        "ST_USER": "test:tester",
        "ST_KEY": "hunter2",
        "AWS_ACCESS_KEY_ID": "me",
    }
    swift, s3, profile, name = find_problems(needs, variables)
    assert swift.startswith("store swift: cannot log in at http://127.0.0.1:9/auth/v1.0: ")
    assert "(the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) does not have both)" in s3
    assert "store swift (profile lab): /nonexistent/.config/weighbridge/stores.yaml: not found" in profile
    assert "did you mean 'swift'" in name
    assert "hunter2" not in f"{swift}{s3}{profile}{name}"


def test_the_program_of_a_command_or_a_workload_is_asked_for_in_its_image():
    """Once for each engine and image, with what decides where it is; none that a job may make or fetch."""
    maker, other = Operation("run", "run"), Operation("create", "create", argv=("tool", "-a"))
    mounts = (Mount("tmpfs", "/srv"),)
    first = treatment(0, image="i", command=("sleep", "1"), env={"PATH": "/opt"}, storage=mounts, files={"/x": ""})
    first = replace(first, job=Lifecycle((maker,)))
    wanted = Requirement("docker", "i", starts=ImageProgram("sleep", "/opt", None, ("/srv", "/x")))
    assert started_programs([first, replace(first, index=1)], "vm") == [wanted]
    assert started_programs([replace(first, job=Lifecycle((other,)))], "vm")[0].starts.program == "tool"
    container = ContainerSettings(image="i")
    guest = replace(first, job=Guest("command", {}, OwnCommand(("./x.sh",))), container=container)
    assert started_programs([guest], "vm") == [Requirement("docker", "i", starts=ImageProgram("./x.sh"))]
    workload = replace(guest, job=Guest("sysbench-cpu", {}))
    assert [(one.starts.program, one.starts.directory) for one in started_programs([workload], "vm")] == [
        ("sysbench", "")
    ]
    beside = [guest, replace(guest, engine="native")]
    assert [one.compared for one in (*started_programs(beside, "vm"), *measured_programs(beside, "vm"))] == [True]
    needless = [
        replace(guest, job=Guest("command", {}, OwnCommand(("x",), prepare=("make", "x")))),
        replace(guest, job=Guest("command", {}, OwnCommand(("{tool}",)))),
        replace(guest, engine="native"),
        replace(guest, optional=True),
        replace(guest, environment="metal"),
        replace(guest, container=ContainerSettings(rootfs="/srv")),
        replace(first, job=Lifecycle((Operation("pull", "pull"), maker))),
        replace(first, container=container),
    ]
    assert started_programs(needless, "vm") == []
    scene = Scene(guest)
    assert not scene.hello()
    [(_, question)] = scene.asked
    assert question.requirements[-1].starts == ImageProgram("./x.sh")
