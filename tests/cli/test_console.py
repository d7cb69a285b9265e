"""`kafka-steward`: the verbs without Airflow, and a cluster that is named by its brokers."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.cli import cli_config

from kafka_steward.cli import Exit, declare_commands, get_kafka_steward_commands
from kafka_steward.cli.console import build_parser
from kafka_steward.cli.declarations import ActionCommand
from kafka_steward.cli.direct import DirectAccess, read_command_config
from kafka_steward.doctor.findings import Commands
from kafka_steward.errors import SettingError
from kafka_steward.sandbox import Sandbox, start
from tests.eventually import eventually

PROGRAM = Path(sys.executable).with_name("kafka-steward")
LOOKING = {"status", "health", "partitions", "doctor", "plan", "generate", "make-archive", "prepare-spark"}


def leaves(commands: Iterable[Any], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for each in commands:
        name = (*prefix, each.name)
        found |= leaves(each.subcommands, name) if hasattr(each, "subcommands") else {name: each}
    return found


VERBS: Mapping[tuple[str, ...], ActionCommand] = leaves(declare_commands().subcommands)


def test_airflow_gets_the_verbs_as_they_are_declared() -> None:
    (group,) = get_kafka_steward_commands()
    assert isinstance(group, cli_config.GroupCommand)
    theirs = leaves(group.subcommands)
    assert theirs.keys() == VERBS.keys()
    for name, verb in VERBS.items():
        assert isinstance(theirs[name], cli_config.ActionCommand)
        assert [(arg.flags, arg.kwargs) for arg in theirs[name].args] == [(arg.flags, arg.options) for arg in verb.args]
        assert theirs[name].func == verb.func


def arguments_of(**given: str | None) -> Namespace:
    return Namespace(
        **dict.fromkeys(("cluster", "bootstrap_server", "command_config", "plan", "remove")) | {"verbose": True} | given
    )


@pytest.mark.parametrize("name", [name for name in VERBS if not {name[0], name[-1]} & LOOKING], ids=" ".join)
def test_a_verb_that_needs_a_journal_says_why_it_needs_a_connection(
    name: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    verb = VERBS[name]
    with pytest.raises(SystemExit) as ended:
        verb.func(arguments_of(bootstrap_server="b1:9092"))
    assert ended.value.code == Exit.USAGE
    said = capsys.readouterr().err
    assert "needs an Airflow connection, which names a journal" in said
    assert "airflow connections add CONN_ID --conn-type kafka_steward" in said
    reads = name[-1] in {"plans", "show", "audit", "pending", "list"} or name == ("queue", "verify")
    why = (
        "it reads what is kept" if reads else "without it, our own" if name == ("throttles",) else "what Kafka Steward"
    )
    assert f"which names a journal: {why}" in said


def test_a_command_that_is_suggested_names_the_cluster_as_the_user_did_if_it_only_looks() -> None:
    commands = Commands.of("CONN_ID", {}, "b1:9092", "--bootstrap-server b1:9092")
    look = commands.steward("partitions --unavailable-partitions")
    assert look == "kafka-steward partitions --unavailable-partitions --bootstrap-server b1:9092"
    assert commands.steward("throttles") == "airflow kafka-steward throttles --cluster CONN_ID"


def test_a_command_that_is_suggested_begins_with_the_program_that_suggests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/venv/bin/kafka-steward", "doctor"])
    assert Commands.of("prod", {}, "b1:9092").steward("throttles") == "kafka-steward throttles --cluster prod"
    assert Commands.of("prod", {}, "b1:9092").steward("status") == "kafka-steward status --cluster prod"


def test_removing_throttles_changes_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        VERBS["throttles",].func(arguments_of(bootstrap_server="b1:9092", remove="all"))
    assert "which names a journal: what Kafka Steward changes is kept there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"cluster": "prod", "bootstrap_server": "b1:9092"}, "name a cluster twice"),
        ({"command_config": "client.properties"}, "goes with --bootstrap-server"),
        ({"bootstrap_server": "b1:9092", "probe": "yes"}, "give --cluster CONN_ID"),
    ],
    ids=["twice", "config alone", "probe"],
)
def test_options_that_do_not_go_together_are_one_sentence(
    given: dict[str, str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = VERBS["status",]
    with pytest.raises(SystemExit) as ended:
        verb.func(arguments_of(**given))
    assert ended.value.code == Exit.USAGE
    assert expected in capsys.readouterr().err


def test_the_help_is_in_the_words_of_this_program() -> None:
    help_text = build_parser([]).format_help()
    assert "\n  kafka-steward doctor" in help_text
    assert "airflow kafka-steward" not in help_text


def client_file(folder: Path, text: str) -> str:
    path = folder / "client.properties"
    path.write_text(text, encoding="latin-1")
    return str(path)


def test_a_client_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    text = r"""# a comment
security.protocol = SASL_SSL
sasl.mechanism: SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="ann" \
    password="a\u0020=b";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/ca.pem
request.timeout.ms=9000
"""
    given = read_command_config(client_file(tmp_path, text))
    assert given["sasl_plain_username"] == "ann"
    assert given["sasl_plain_password"] == "a =b"
    assert given["ssl_cafile"] == "/etc/ca.pem"
    assert (given["security_protocol"], given["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert given["request_timeout_ms"] == 9000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("frobnicate.ms=1\n", "has frobnicate.ms, which our client does not know: remove it, or correct its spelling"),
        ("a.ms=1\nretries=1\nb.ms=2\n", "has a.ms, b.ms, which our client does not know: remove them"),
        ("security.protocol=SSL\nssl.truststore.location=/ca.jks\n", "keytool"),
        ("security.protocol=\\u12\n", "cannot be read"),
        ("frobnicate.ms=1\npassword-s3cr3t;\n", "has frobnicate.ms, which our client does not know: remove it"),
        ("s3cr3t\npassword-s3cr3t;\n", "has 2 lines without a key, such as security.protocol=SASL_SSL: correct"),
        ("#" * (1 << 20) + "\n", "is not a file of at most 1 MB"),
    ],
    ids=["unknown key", "unknown keys", "JKS", "bad escape", "key and secret", "secrets", "large"],
)
def test_a_client_file_that_cannot_be_used_is_one_sentence_with_its_name(
    text: str, expected: str, tmp_path: Path
) -> None:
    path = client_file(tmp_path, text)
    with pytest.raises(SettingError) as refused:
        read_command_config(path)
    assert expected in str(refused.value)
    assert path in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer, and a device, would be read for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero", str(tmp_path)):
        with pytest.raises(SettingError, match="is not a file of at most 1 MB"):
            read_command_config(path)


def test_keys_of_kafka_s_own_clients_that_say_nothing_here_are_ignored(tmp_path: Path) -> None:
    keys = ("default.api.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes", "metrics.num.samples")
    text = "".join(f"{key}=1\n" for key in keys)
    assert read_command_config(client_file(tmp_path, text)) == read_command_config(client_file(tmp_path, ""))


def test_a_password_beside_a_server_is_not_repeated() -> None:
    with pytest.raises(SettingError, match="--bootstrap-server has an @; write host:port"):
        _ = DirectAccess("ann:s3cr3t@b1:9092").access


@pytest.mark.parametrize("plan", ["nosuch.json", "a folder/"])
def test_what_is_neither_a_file_nor_a_digest_is_one_sentence(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        VERBS["show",].func(arguments_of(plan=plan))
    assert ended.value.code == Exit.USAGE
    assert capsys.readouterr().err == f"{plan} is neither a file nor the digest of a plan, or a prefix of one.\n"


def test_a_client_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"none.properties of --command-config cannot be read: No such file"):
        read_command_config(str(tmp_path / "none.properties"))


def test_a_setting_that_cannot_be_used_is_one_sentence_with_the_name_of_its_file(tmp_path: Path) -> None:
    path = client_file(tmp_path, "security.protocol=SASL_SSL\nsasl.mechanism=FOO\n")
    with pytest.raises(SettingError, match=rf"The file {path} .*sasl_mechanism is FOO; it takes one of PLAIN"):
        DirectAccess("b1:9092", path).cluster()


@pytest.mark.parametrize(
    ("servers", "named"),
    [("b1", "b1"), ("b1:9092, b2", "b2"), ("[::1]", "[::1]"), ("b1:x", "b1:x"), ("b1:99999", "b1:99999"), ("", "")],
)
def test_a_server_without_a_port_is_one_sentence_with_an_example(servers: str, named: str) -> None:
    with pytest.raises(SettingError) as refused:
        _ = DirectAccess(servers).access
    assert str(refused.value) == f"--bootstrap-server has {named!r}; write host:port, such as b1.example.com:9092."


def test_an_address_of_ipv6_is_a_server() -> None:
    assert DirectAccess("[::1]:9092,b1:9093").access.bootstrap == "[::1]:9092,b1:9093"


@pytest.mark.process
@pytest.mark.parametrize("verb", ["status", "plans"])
def test_a_cluster_that_is_not_named_is_one_sentence_and_no_home_of_airflow(verb: str, tmp_path: Path) -> None:
    said = run(verb, env={"HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path / "airflow")})
    look = "--bootstrap-server HOST:PORT, or " if verb == "status" else ""
    wanted = f"The cluster is not named: give {look}--cluster CONN_ID, the Airflow connection of the cluster.\n"
    assert (said.returncode, said.stdout, said.stderr) == (Exit.USAGE, "", wanted)
    assert not list(tmp_path.iterdir())


def test_what_is_about_this_machine_takes_no_cluster() -> None:
    for name in ("make-archive", "prepare-spark"):
        assert not {"--cluster", "--bootstrap-server"} & {flag for arg in VERBS[name,].args for flag in arg.flags}


def test_no_secret_of_a_client_file_is_in_a_repr(tmp_path: Path) -> None:
    text = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s3cret";\n'
    )
    access = DirectAccess("b1:9092", client_file(tmp_path, text))
    assert access.access.client["sasl_plain_password"] == "s3cret"
    assert "s3cret" not in repr(access) + repr(access.access)


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **(env or {})}
    )


@pytest.mark.process
def test_a_command_that_shows_a_cluster_or_a_plan_needs_neither_arrow_nor_a_database() -> None:
    script = (
        "import sys, kafka_steward.cli.direct, kafka_steward.cli.show\n"
        "print(sorted({'airflow', 'pyarrow', 'sqlalchemy'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.strip() == "[]"


@pytest.mark.process
def test_neither_help_nor_completion_needs_airflow_or_kafka(tmp_path: Path) -> None:
    script = (
        "import sys; from kafka_steward.cli.console import build_parser; build_parser(None)\n"
        "print(sorted({'airflow', 'kafka', 'kazoo', 'pyarrow', 'sqlalchemy'} & set(sys.modules)))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout.strip() == "[]"
    listed = tmp_path / "listed"
    line = "kafka-steward parti"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_SHELL": "bash"}
    run(env={**asked, "IFS": "\v", "_ARGCOMPLETE_STDOUT_FILENAME": str(listed)})
    assert listed.read_text().split() == ["partitions"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    with start("kraft", brokers=3) as started:
        yield started


def assert_not_ready(said: str) -> None:
    assert "The workflow rebalance would not start now. The cluster is not ready" in said


@pytest.mark.kraft
def test_a_cluster_is_looked_at_without_airflow_and_nothing_stays_behind(cluster: Sandbox, tmp_path: Path) -> None:
    direct = ["--bootstrap-server", cluster.bootstrap]
    here = {"TMPDIR": str(tmp_path), "AIRFLOW_HOME": str(tmp_path / "airflow")}
    status = run("status", *direct, env=here)
    assert status.returncode == 0, status.stderr
    assert "live brokers: 1, 2, 3" in status.stdout
    assert "journal" not in status.stdout
    assert "no journal was read" in status.stderr
    imported = run("status", *direct, env={**here, "PYTHONPROFILEIMPORTTIME": "1"}).stderr
    assert " kafka_steward.hooks.session" in imported
    assert " sqlalchemy" not in imported, "no journal is opened, which takes most of the time"
    assert run("partitions", *direct, env=here).returncode == 0
    health = run("health", *direct, env=here)
    assert health.returncode == 0, health.stderr
    assert "0 are under-replicated" in health.stdout
    doctor = run("doctor", *direct, env=here)
    assert doctor.returncode == 0, doctor.stdout
    assert "airflow connections add CONN_ID" in doctor.stdout
    planned = run("plan", "rebalance", *direct, "--output", "json", env=here)
    assert planned.returncode == 0, planned.stderr
    cluster.create_topics("generated", assignments={0: (1, 3)})
    generated = run("queue", "generate", "--topic", "generated", "--brokers", "1,2", *direct, env=here)
    assert "Proposed assignment:" in generated.stdout, generated.stderr
    cluster.kill(3)
    eventually(lambda: assert_not_ready(run("plan", "rebalance", *direct, env=here).stderr), within=60)
    assert generated.stderr.count("no journal was read") == 1
    assert not list(tmp_path.iterdir()), "neither a journal nor a home of Airflow"
