"""`weigh`: a command line becomes the scenario that runs, and that `--save-scenario` writes."""

import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench_common.stats.block_types import as_stored
from bench_common.treatment import Guest, Lifecycle, OwnCommand, Treatment
from bench_master.analysis.subject import describe_subject
from bench_master.cli import run_command_line
from bench_master.commands import weigh
from bench_master.options.verdict import apply_verdict_options
from bench_master.scenario import load_scenario


@pytest.fixture
def weighed(monkeypatch, tmp_path):
    """Run a command line up to the run itself; return its exit code, the scenario and the options of the run."""
    monkeypatch.chdir(tmp_path)
    runs = []
    monkeypatch.setattr(weigh, "run_loaded", lambda *given: runs.append(given) or 0)

    def call(text):
        runs.clear()
        assert run_command_line(["weigh", *shlex.split(text)]) == 0
        ((scenario, options),) = runs
        return scenario, options

    return call


def complaint(capsys, *words):
    """Return the one line that a refused command line prints."""
    try:
        status = run_command_line(["weigh", *words])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    return line


def test_a_container_with_the_command_from_create_to_remove(weighed):
    """Each engine is a treatment; the command is the container's own, and every step of its life is timed."""
    scenario, _ = weighed("docker runc crun native --image web:1 --concurrency 4 --repeats 12 -- sleep 1")
    assert [one.labels for one in scenario.treatments] == [
        {"engine": engine} for engine in ("docker", "runc", "crun", "native")
    ]
    first = scenario.treatments[0]
    assert isinstance(first.job, Lifecycle)
    assert [one.kind for one in first.job.operations] == ["create", "start", "wait", "remove"]
    assert (first.container.image, first.container.command, first.concurrency) == ("web:1", ("sleep", "1"), 4)
    assert (set(scenario.repeats), set(scenario.warmup), set(scenario.primary)) == ({12}, {1}, {"job.p50"})
    assert (scenario.name, scenario.thresholds) == ("sleep 1", ("jobs.failed == 0",))


def test_failures_that_are_allowed_break_no_threshold(weighed):
    """A threshold on failed jobs would take precedence over the option."""
    scenario, _ = weighed("native --allow-failures -- false")
    assert (scenario.allow_failures, scenario.thresholds) == (True, ())


def test_the_command_alone(weighed):
    """It runs in an idle container, so that the time of a job is its own."""
    scenario, _ = weighed("docker native --job command -- sh -c 'seq 3'")
    first = scenario.treatments[0]
    assert isinstance(first.job, Guest)
    assert first.job.workload == "command"
    assert (first.job.own.command, first.job.own.start_cost) == (("sh", "-c", "seq 3"), ("true",))
    assert first.container.image == "weighbridge/base"


@pytest.mark.parametrize("words", ["true --help", "true -- -x", "true --dry-run -q", "env A=1 -f x"])
def test_what_stands_after_the_dashes_is_the_commands(weighed, words):
    """No option of it is taken for one of ours, and later dashes are passed on."""
    scenario, options = weighed(f"native -- {words}")
    assert scenario.treatments[0].container.command == tuple(words.split())
    assert not options.dry_run


SAVED = [
    "docker native -- sleep 1",
    "docker runc --job command --image web:1 --concurrency 3 --repeats 7 -- sleep 1",
    "docker native -o 30 --seed 5 --baseline engine=native --margin 5% --overhead -- true",
    "docker native --allow-failures -- true",
    "'sleep 1' 'sleep 2'",
    "docker 'a 1' 'b 2' --job lifecycle --env A=1 --env B=x=y -w 0",
    "'a {N}' -L N 1,2 --prepare 'rm -rf x' --cleanup 'rm x' --setup 'mk x' -n one -n two --shell",
    "docker native --run-seconds 90 --rate 20/s --arrivals poisson -- true",
    "'a {N} {M}' b -P N 1 2 -D 0.5 -L M x,y -r 4 --input input --mount . --mount /tmp:/t:ro",
    "--engine crun docker 'a | b' 'a | c' --shell --image one --image two -n '1 | 2' -n 'both of them: \"x\"'",
    "docker --image one --image two -- true",
    "'a 1' 'b 2' --metric 'score: (.)' --metric 'p=q: (.)' --primary score:higher",
    "'a 1' 'b 2' --primary cpu",
    "docker native --until verdict -- true",
    "docker native --until verdict --max-rounds 12 --budget 2h -- true",
    "docker native --set container.network=host --set timeout=1h --set 'matrix={concurrency: [1, 2]}' -o 5 -- true",
    """native -- no 1:30 y 0x10 '' '# a' 'b: c' "it's" '"' - '[x' ~ 3.0 '{{x}}' 'zwei Wörter' 'a\nb' '%' '!x' '&y'""",
]


@pytest.mark.parametrize("words", SAVED)
def test_the_saved_scenario_is_the_one_that_runs(weighed, words):
    """`run-scenario -f` of the file has the same treatments, rounds, seed and comparisons, without any option."""
    Path("input").touch()
    scenario, options = weighed(f"--save-scenario x.yaml {words}")
    ran = apply_verdict_options(scenario, options.verdicts)
    saved = load_scenario("x.yaml")
    assert saved.treatments == ran.treatments
    assert saved.seed == options.load.seed
    other = replace(saved, path=ran.path, text=ran.text, document=ran.document, seed=ran.seed, notes=ran.notes)
    assert replace(other, command_places=ran.command_places) == ran


def test_quoted_commands_are_compared_with_the_first(weighed):
    """As plain processes unless an engine is named, the command alone; each is told by its own text or its name."""
    scenario, _ = weighed("'./old --flag' './new --flag' './new \"a b\"'")
    assert [one.labels["command"] for one in scenario.treatments] == ["./old --flag", "./new --flag", './new "a b"']
    assert {one.engine for one in scenario.treatments} == {"native"}
    assert [one.job.own.command for one in scenario.treatments][2] == ("./new", "a b")
    assert (set(scenario.repeats), set(scenario.warmup)) == ({10}, {1})
    named, _ = weighed("docker crun 'a 1' 'b 2' -n old -n new --image web:1 --env LANG=C -w 3")
    assert [one.labels for one in named.treatments] == [
        {"engine": engine, "command": name} for engine in ("docker", "crun") for name in ("old", "new")
    ]
    first = named.treatments[0]
    assert (first.container.image, dict(first.container.env)) == ("web:1", {"LANG": "C"})
    assert named.document["baseline"] == {"command": "old"}
    assert set(named.warmup) == {3}


def test_options_may_stand_between_commands(weighed):
    """As a name before its command, and between an engine and the commands."""
    scenario, _ = weighed("-n old './a 1' -n new './a 2' -r 7")
    assert [one.labels["command"] for one in scenario.treatments] == ["old", "new"]
    assert [one.job.own.command[1] for one in scenario.treatments] == ["1", "2"]
    scenario, _ = weighed("crun --image web 'a 1' --env A=1 'b 2'")
    assert [one.labels["command"] for one in scenario.treatments] == ["a 1", "b 2"]
    assert {one.engine for one in scenario.treatments} == {"crun"}
    scenario, _ = weighed("docker -r 3 crun -- true")
    assert [one.engine for one in scenario.treatments] == ["docker", "crun"]


def test_a_second_pair_of_dashes_is_told(weighed, capsys):
    """They are an argument of the command; two commands are quoted."""
    scenario, _ = weighed("native -- true a -- false b")
    assert scenario.treatments[0].container.command == ("true", "a", "--", "false", "b")
    assert "bench-master weigh native 'true a' 'false b'" in capsys.readouterr().err


def test_an_option_of_ours_behind_the_dashes_is_told(weighed, capsys):
    """It goes to the command all the same."""
    scenario, _ = weighed("native -- true --repeats 3")
    assert scenario.treatments[0].container.command == ("true", "--repeats", "3")
    assert "note: --repeats stands behind '--', so it is an option of true, not of weigh" in capsys.readouterr().err


def test_a_long_command_is_called_by_its_ends(weighed):
    """What differs is mostly at one of them; where it is in the middle the whole text is the name."""
    same = "--one=1 --two=2 --three=3 --four=4 --five=5"
    scenario, _ = weighed(f"'true {same} old' 'true {same} new'")
    names = [one.labels["command"] for one in scenario.treatments]
    assert [name[-3:] for name in names] == ["old", "new"]
    assert max(map(len, names)) == 40
    scenario, _ = weighed(f"'true {same} old {same}' 'true {same} new {same}'")
    assert [one.labels["command"] for one in scenario.treatments] == [
        f"true {same} {it} {same}" for it in ("old", "new")
    ]
    commands = [as_stored(one) for one in scenario.treatments]
    assert describe_subject(commands, ["vm"]).count("`true --one=1 ") == 2


def test_a_title_shows_the_input_and_not_the_shell_that_gives_it(weighed, tmp_path):
    """As one would write it."""
    (tmp_path / "in.txt").write_text("x")
    scenario, _ = weighed(f"native --input {tmp_path / 'in.txt'} -- cat -n")
    assert describe_subject([as_stored(one) for one in scenario.treatments], []).startswith("`cat -n < ")


def test_a_shell_without_a_script_has_a_title(weighed):
    """Two words are no wrapper of ours."""
    scenario, _ = weighed("native -- sh -c")
    assert describe_subject([as_stored(one) for one in scenario.treatments], []).startswith("`sh -c`")


def test_jobs_of_own_commands_are_named_with_them():
    """A title says what was run."""
    jobs = {"a": ("sleep", "1"), "b": ("sync",)}
    made = [
        as_stored(Treatment(0, {"job": name}, None, "native", Guest("command", {}, OwnCommand(argv))))
        for name, argv in jobs.items()
    ]
    assert describe_subject(made, ["vm"]) == "a (`sleep 1`), b (`sync`), on host vm"


def test_a_command_that_is_not_quoted_is_told(weighed, capsys):
    """Its arguments would be commands, which are no programs."""
    weighed("sleep 1")
    assert "note: these are 2 commands; quote one with its arguments: 'sleep 1'" in capsys.readouterr().err
    weighed("sleep true")
    assert "note" not in capsys.readouterr().err


def test_a_parameter_makes_a_command_of_each_value(weighed):
    """Every combination of them; a command without one is weighed once."""
    scenario, _ = weighed("'sort -S {M} -p {N}' true -L N 1,2 -L M 1G,2G")
    assert [one.labels["command"] for one in scenario.treatments] == [
        "sort -S 1G -p 1", "sort -S 2G -p 1", "sort -S 1G -p 2", "sort -S 2G -p 2", "true",
    ]  # fmt: skip


def test_a_scan_makes_a_command_of_each_number(weighed):
    """From the first to the last, in exact decimals, by 1 unless a step is given."""
    scenario, _ = weighed("'a {N}' -P N 9 11")
    assert [one.labels["command"] for one in scenario.treatments] == ["a 9", "a 10", "a 11"]
    scenario, _ = weighed("'a {N}' -P N 0.1 0.45 -D 0.1")
    assert [one.labels["command"] for one in scenario.treatments] == ["a 0.1", "a 0.2", "a 0.3", "a 0.4"]


def test_images_are_compared(weighed):
    """Each is a treatment, whether the command stands behind the dashes or is quoted."""
    scenario, _ = weighed("docker --image one --image two -- true")
    assert [one.labels for one in scenario.treatments] == [
        {"engine": "docker", "image": image} for image in ("one", "two")
    ]
    quoted, _ = weighed("docker 'a 1' b --image one --image two")
    assert len(quoted.treatments) == 4
    assert quoted.baseline == {"command": "a 1"}


def test_a_command_is_called_by_its_own_text(weighed):
    """Also where a shell reads it or opens its input; a name may be any line."""
    scenario, _ = weighed("'a | b' 'c > d' --shell")
    assert [one.labels["command"] for one in scenario.treatments] == ["a | b", "c > d"]
    scenario, _ = weighed("'a | b' --shell")
    assert [one.labels["command"] for one in scenario.treatments] == ["a | b"]
    scenario, _ = weighed("'a 1' 'b 2' -n 'old: 1 | 2' -n new")
    assert [one.labels["command"] for one in scenario.treatments] == ["old: 1 | 2", "new"]


def test_a_file_is_the_standard_input(weighed, tmp_path):
    """A shell opens it, also for the command whose time is the cost of starting one; steps do not read it."""
    (tmp_path / "it's").touch()
    scenario, _ = weighed("'a 1' --input \"it's\" --prepare 'c d'")
    own, path = scenario.treatments[0].job.own, shlex.quote(str(tmp_path / "it's"))
    assert own.command == ("sh", "-c", f'exec "$0" "$@" < {path}', "a", "1")
    assert own.start_cost == ("sh", "-c", f'exec "$0" "$@" < {path}', "true")
    assert own.prepare == ("c", "d")
    scenario, _ = weighed("'a | b' --shell --input \"it's\"")
    assert scenario.treatments[0].job.own.command == ("sh", "-c", f"{{ a | b\n}} < {path}")


def test_plain_processes_work_in_this_directory(weighed, tmp_path):
    """And containers where it is mounted at its own path; elsewhere it is not theirs."""
    here = str(tmp_path)
    scenario, _ = weighed("./a ./b")
    assert scenario.treatments[0].container.directory == here
    scenario, _ = weighed("docker native './a b' --mount .")
    (first, _) = scenario.treatments
    assert (first.container.directory, [one.target for one in first.container.storage]) == (here, [here])
    for words in ("docker native './a b'", "docker './a b' --mount /:/host:ro", "./a --expect 1"):
        scenario, _ = weighed(words)
        assert scenario.treatments[0].container.directory is None


def test_numbers_of_the_output_and_cpu_time_can_be_compared(weighed):
    """A metric is named by its first word; the time stays the primary measure unless another one is asked for."""
    scenario, _ = weighed("a b --metric 'score: ([0-9]+)' --metric 'x=y (.)'")
    first = scenario.treatments[0]
    assert [(one.name, one.regex) for one in first.job.own.metrics] == [("score", "score: ([0-9]+)"), ("x", "y (.)")]
    assert set(scenario.primary) == {"job.p50"}
    scenario, _ = weighed("a b --metric 'score: (.)' --primary score:higher")
    assert (scenario.primary[0], scenario.treatments[0].job.own.metrics[0].better) == ("score", "higher")
    scenario, _ = weighed("a b --primary user")
    (metric,) = scenario.treatments[0].job.own.metrics
    assert (scenario.primary[0], metric.usage, metric.unit, metric.better) == ("user", "user", "s", "lower")
    scenario, _ = weighed("native --primary cpu_total -- true")
    assert (scenario.primary[0], scenario.treatments[0].cost) == ("cpu_total", True)
    for words, measure in (("a b", "max_rss"), ("docker 'a 1'", "memory_peak")):
        scenario, _ = weighed(f"{words} --primary max-rss")
        assert (scenario.primary[0], scenario.treatments[0].cost) == (measure, True)
    scenario, _ = weighed("a b --primary job.p95")
    assert set(scenario.primary) == {"job.p95"}


def test_engines_are_named_by_option_and_by_label(weighed):
    """`--engine` takes an engine without a label, and a label of an engine may stand before the commands."""
    scenario, _ = weighed("--engine docker --engine crun 'a 1'")
    assert [one.engine for one in scenario.treatments] == ["docker", "crun"]
    scenario, options = weighed("crun new=crun:/opt/crun/bin/crun 'a 1' 'b 2'")
    assert [one.engine for one in scenario.treatments] == ["crun", "crun", "new", "new"]
    assert [str(label) for label in options.workers.engine] == ["new=crun:/opt/crun/bin/crun"]
    scenario, _ = weighed("crun new 'a 1' --engine new=crun:/opt/crun/bin/crun")
    assert [one.engine for one in scenario.treatments] == ["crun", "new"]
    scenario, _ = weighed("--engine docker -- true")
    assert [one.engine for one in scenario.treatments] == ["docker"]


def test_a_shell_reads_commands_where_it_is_asked_to(weighed, capsys):
    """Also what prepares and cleans up; without it no character is special."""
    scenario, _ = weighed("'a | b' 'c > d' --shell --prepare 'rm -f *' --cleanup 'e; f' --setup 'g h'")
    own = scenario.treatments[0].job.own
    assert (own.command, own.prepare) == (("sh", "-c", "a | b"), ("sh", "-c", "rm -f *"))
    assert (own.cleanup, own.setup) == (("sh", "-c", "e; f"), ("sh", "-c", "g h"))
    capsys.readouterr()
    scenario, _ = weighed("'a | b' --prepare 'rm -f *' --setup 'echo 3 > f'")
    notes = [line for line in capsys.readouterr().err.splitlines() if "note:" in line]
    assert notes == [
        "note: no shell reads 'a | b': its | is an argument; --shell has sh read it",
        "note: no shell reads 'echo 3 > f': its > is an argument; --shell has sh read it",
    ]
    assert scenario.treatments[0].job.own.command == ("a", "|", "b")
    assert scenario.treatments[0].job.own.prepare == ("rm", "-f", "*")
    weighed(shlex.quote(r"find -exec cut -d '|' {} \;"))
    assert "note:" not in capsys.readouterr().err


def test_a_file_with_something_else_in_it_is_kept(weighed, tmp_path, capsys):
    """The same command may write its file again; another one is refused, and what is there stays."""
    for _ in range(2):
        weighed("native --save-scenario x.yaml -- true")
    text = (tmp_path / "x.yaml").read_text()
    capsys.readouterr()
    message = complaint(capsys, "native", "--save-scenario", "x.yaml", "--", "false")
    assert message.startswith("bench-master: x.yaml: already exists, with something else in it; name another")
    assert (tmp_path / "x.yaml").read_text() == text
    missing = complaint(capsys, "native", "--save-scenario", "no/x.yaml", "--", "false")
    assert missing.startswith("bench-master: no/x.yaml: cannot write: No such file or directory; name another")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("dokcer native -- true", "unknown engine 'dokcer' (did you mean 'docker'?); one of: "),
        ("native native -- true", "engine 'native' is named twice"),
        ("docker runc sleep 1", "write it after '--', such as: bench-master weigh docker runc -- sleep 1;"),
        ("docker ls -l 'a b'", "write it after '--', such as: bench-master weigh docker -- ls -l 'a b';"),
        ("docker ./x.sh a --mount . -r 2", "such as: bench-master weigh docker --mount . -r 2 -- ./x.sh a;"),
        ("docker true -r 3", "write it after '--', such as: bench-master weigh docker -r 3 -- true;"),
        ("docker --job command x", "write it after '--', such as: bench-master weigh docker -- sleep 1;"),
        ("", "the command is missing: write it after '--', such as: bench-master weigh docker native -- sleep 1;"),
        ("native --", "the command is missing: write it after '--', such as: bench-master weigh native -- sleep 1;"),
        ("native -- ''", "the command is empty: the first word after '--' is the program to run"),
        ("-- true", "name an engine before '--', such as: bench-master weigh docker native -- true"),
        ("a -p x", "unknown option -p (hyperfine's -p is --prepare)"),
        ("a -s x", "'x': expected a name that ends in .gz, such as run.stats.gz (hyperfine's -s is --setup)"),
        ("-i a b", "a: no such file: expected an inventory (docs/fleet.rst) (hyperfine's -i is --allow-failures)"),
        ("'a b' --input .", "--input .: is no regular file"),
        ("-i a", "(hyperfine's -i is --allow-failures)"),
        ("a --export-json x", "unknown option --export-json (hyperfine's --export-json is --export json FILE)"),
        ("a --export jsn x", "'jsn': expected a format (did you mean 'json'?)"),
        ("'a {N}' -P N 5 1", "expected a first number that is not above the last, and a step above 0"),
        ("'a {N}' -P N 1 x", "expected numbers, such as -P threads 1 8"),
        ("'a {N}' -P N 1 inf", "-P N 1 inf: expected finite numbers, such as -P threads 1 8"),
        ("'a {N}' -P N nan 4", "-P N nan 4: expected finite numbers"),
        ("'a {N}' -P N 1 4 -D x", "-P N 1 4 -D x: expected numbers, such as -P threads 1 8"),
        ("'a {N}' -P N 1 4 -D 0", "-P N 1 4 -D 0: expected a first number that is not above the last, and a step"),
        ("'a {N}' -P N 0 1 -D 0.0001", "these are 10001 values; at most 1000"),
        ("'a {N}' -P N 1 2 -L N x,y", "the parameter is given twice"),
        ("a -D 1", "it is the step of a scan: -P NAME FROM TO -D STEP"),
        ("a --input nosuch", "--input nosuch: no such file"),
        ("docker 'a b' --mount nosuch", "there is no nosuch on this host; expected SOURCE[:TARGET][:ro]"),
        ("docker 'a b' --mount /tmp:x", "expected an absolute path in the containers after ':', then :ro or nothing"),
        ("docker 'a b' --mount /tmp:/x:rw", "after ':', then :ro or nothing"),
        ("a --metric '(.)'", "it has no word for a name; write NAME=REGEX"),
        ("a --metric 'x: (.)' --primary x", "say what is better: x:higher or x:lower"),
        ("a --primary y:higher", "expected a --metric before ':'"),
        (
            "docker native 'a b' --primary max-rss",
            "write max_rss (plain processes that take more than the worker does) or memory_peak",
        ),
        ("native --primary memory_peak -- true", "nobody tells memory_peak of a job of native"),
        ("docker 'a b' --primary cpu", "docker does not tell the CPU time of a command; native does"),
        ("native --primary cpu -- true", "--primary cpu: needs --job command, or a quoted command"),
        ("native --metric 'x (.)' -- true", "--metric needs --job command"),
        ("native --image a --image b -- true", "native has no images that could be compared"),
        ("docker --image a --image a -- true", "--image a is given twice; to measure the noise of one: --set aa=a"),
        ("--engine nosuch 'a b'", "'nosuch': expected an engine"),
        ("new=nosuch:/x 'a b'", "unknown engine 'nosuch'"),
        ("docker runc true 'sleep 1'", "write it after '--'"),
        ("a b -n one", "-n is given 1 time for 2 commands: once for each"),
        ("a b -n one -n one", "'one' is named twice"),
        ("a a", "'a' is named twice; to measure the noise of one command"),
        ("a -L N 1,2", "-L N: no command has {N} in it"),
        ("'a \"b'", "No closing quotation; a shell reads it with --shell"),
        ("''", "the command is empty"),
        ("a b --env X", "--env X: expected NAME=VALUE, such as --env LANG=C"),
        ("native --prepare x -- true", "--prepare needs --job command"),
        ("native -n x -- true", "-n is for quoted commands, such as: bench-master weigh 'a --old' 'a --new'"),
        ("native -D 1 -- true", "-D is for quoted commands, such as: bench-master weigh 'a --old' 'a --new'"),
        ("native --jbo command -- true", "unknown option --jbo (did you mean '--job'?)"),
        ("native --job comand -- true", "(did you mean 'command'?)"),
        ("native --concurrency 0 -- true", "'0': expected a whole number from 1 to 65536"),
        ("native -u 3 -- true", "unknown option -u"),
        (
            "native --job command --primary tim -- true",
            "--primary tim: unknown measure (did you mean 'time'?); expected time, user, ",
        ),
        ("'a {N}' -L N 1,2,1", "-L N: '1' is given twice; leave one out"),
        ("native docker --until verdict --repeats 3 -- true", "or give --max-rounds"),
        ("native --until verdict -- true", "--until verdict: 'until: verdict' needs a second treatment"),
        (
            "native --rate 5/s --save-scenario x.yaml -- true",
            "set 'operation_count' (-o) or 'run_seconds' (--run-seconds)",
        ),
        ("native --set enginse=x --dry-run -- true", "(did you mean 'engines'?)"),
    ],
)
def test_a_wrong_command_line_is_one_line_that_says_what_to_do(capsys, monkeypatch, tmp_path, words, message):
    """A misspelt engine, missing dashes, a missing command: exit code 2, nothing runs and nothing is written."""
    monkeypatch.chdir(tmp_path)
    assert message in complaint(capsys, *shlex.split(words))
    assert list(tmp_path.iterdir()) == []


def test_an_advised_command_has_the_name_of_the_program(capsys, monkeypatch):
    """As it was called: where uvx runs it, no other name leads to it."""
    monkeypatch.setattr("sys.argv", ["/opt/bin/weighbridge", "weigh", "docker", "true"])
    assert "such as: weighbridge weigh docker -- true; see weighbridge weigh" in complaint(capsys, "docker", "true")


def test_a_word_that_is_not_text_is_refused(capsys):
    """A scenario is text, so no byte of a command may be none."""
    assert "the command is not UTF-8" in complaint(capsys, "native", "--", "echo", "\udcff")


def test_the_examples_of_the_help_are_accepted(weighed, tmp_path):
    """Each of them becomes a scenario, as it is written."""
    (tmp_path / "data.tar").touch()
    examples = [line.strip() for line in weigh.EPILOG.splitlines() if line.startswith("  bench-master weigh ")]
    assert len(examples) > 10
    for example in examples:
        assert weighed(example.removeprefix("bench-master weigh "))[0].treatments


def test_the_plan_is_that_of_a_scenario(capsys, monkeypatch, tmp_path):
    """`--dry-run` prints it; `--help` shows how the command is written."""
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["weigh", "docker", "native", "--dry-run", "--seed", "1", "--", "sleep", "1"]) == 0
    assert "2 treatments, 20 trials and 2 warm-up trials" in capsys.readouterr().out
    for program, flag in (("bench-master", "--help"), ("weighbridge", "--help"), ("weighbridge", "--help-all")):
        monkeypatch.setattr("sys.argv", [f"/usr/bin/{program}"])
        with pytest.raises(SystemExit):
            run_command_line(["weigh", flag])
        out = capsys.readouterr().out
        assert f"usage: {program} weigh " in out
        assert f"\n  {program} weigh docker runc crun native -- sleep 1\n" in out
