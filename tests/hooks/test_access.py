"""What a connection, the section and overrides make together, or are refused for. Pure: no Airflow, no Kafka."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE
from sqlalchemy import make_url

from kafka_steward.assignment import Assignment, Move, TopicPartition
from kafka_steward.errors import JournalError, SettingError, WrongJournal
from kafka_steward.execution.plans.publishing import publish_plan
from kafka_steward.execution.plans.runner import PlanRunner
from kafka_steward.execution.plans.snapshot import take_snapshot
from kafka_steward.execution.plans.undo_verification import verify_undone
from kafka_steward.execution.ports import ClusterContext
from kafka_steward.hooks.cluster_config import ClusterConfig, cluster_config
from kafka_steward.hooks.cluster_config import ConnectionFields as Fields
from kafka_steward.hooks.context import hook_of
from kafka_steward.hooks.journal_database import find_secrets, journal_url, refuse_airflow_database
from kafka_steward.hooks.session import ClusterSession
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.journal import paths
from kafka_steward.journal.audit import Actor
from kafka_steward.journal.zookeeper.mailbox import ZkMailbox
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.session import ROOTS
from kafka_steward.planning.files.formats import plan_table, read_plan, read_snapshot, write_plan
from kafka_steward.sandbox import Sandbox
from kafka_steward.settings import SETTINGS, Settings
from kafka_steward.triggers.base import ClusterWorker
from kafka_steward.triggers.run_plan import RunPlanTrigger
from kafka_steward.triggers.wait import WaitTrigger
from tests.airflow_home import Connect, context
from tests.cancelling import CancelRunner
from tests.eventually import eventually
from tests.stepping import to_the_end

HOME = Path("/airflow")


def with_extra(extra: dict[str, Any]) -> Fields:
    return Fields("kafka", host="a:9092", extra=extra)


def access(given: Fields, *, kafka: Fields | None = None, section: Any = None, overrides: Any = None) -> ClusterConfig:
    return cluster_config(given, kafka, section or {}, overrides or {}, HOME)


def test_the_host_holds_the_bootstrap_servers() -> None:
    assert access(Fields("kafka", host="b:9092, a:9092")).bootstrap == "a:9092,b:9092"


@pytest.mark.parametrize(("algorithm", "checked"), [("", False), ("none", False), ("https", True), (None, None)])
def test_an_empty_algorithm_switches_the_check_of_the_host_name_off(
    algorithm: str | None, checked: bool | None
) -> None:
    extra = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}
    client = access(with_extra(extra)).client
    assert client.get("ssl_check_hostname") is checked


@pytest.mark.parametrize(
    ("host", "servers"),
    [
        ("broker1", "broker1:9093"),
        ("broker1, broker2:9092", "broker1:9093,broker2:9092"),
        ("[::1],[::2]:9092", "[::1]:9093,[::2]:9092"),
    ],
)
def test_a_port_of_its_own_is_for_servers_that_are_named_without_one(host: str, servers: str) -> None:
    assert access(Fields("kafka", host=host, port=9093)).client["bootstrap_servers"] == servers


def test_overrides_win_over_the_extra_which_wins_over_the_section() -> None:
    given = with_extra({"throttle": 2, "window": "chunk", "workspace": "/extra/"})
    section = {"throttle": 1, "window": "sliding", "heal_chunk_size": 7, "workspace": "/section"}
    merged = access(given, section=section, overrides={"throttle": 3})
    assert (merged.settings.throttle, merged.settings.window, merged.settings.heal_chunk_size) == (3, "chunk", 7)
    assert merged.workspace == "/extra"


def test_the_extra_takes_the_kips_dotted_names() -> None:
    given = with_extra({"kafka.heal.chunk.size": 9})
    assert access(given).settings.heal_chunk_size == 9


@pytest.mark.parametrize(
    "extra",
    [
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "ssl_cafile": "/ca.pem"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "ssl.ca.location": "/ca.pem"},
    ],
    ids=["kafka-python's names", "librdkafka's names"],
)
def test_security_settings_go_to_the_client(extra: dict[str, Any]) -> None:
    client = access(Fields("kafka", host="a:9092", login="me", password="secret-word", extra=extra)).client
    assert client["security_protocol"] == "SASL_SSL"
    assert client["ssl_cafile"] == "/ca.pem"
    assert (client["sasl_plain_username"], client["sasl_plain_password"]) == ("me", "secret-word")


def test_a_kafka_connection_is_reused_and_ours_wins_over_it() -> None:
    kafka = Fields("kafka", extra={"bootstrap.servers": "other:9092", "sasl.username": "them", "group.id": "ignored"})
    client = access(Fields("steward", extra={"kafka_conn_id": "kafka"}, login="me"), kafka=kafka).client
    assert client["bootstrap_servers"] == "other:9092"
    assert client["sasl_plain_username"] == "me"


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (Fields("steward", host="a:9092", login="me", extra={"sasl.username": "you"}), "sasl_plain_username"),
        (
            Fields("steward", host="a:9092", password="s3cret", extra={"sasl_plain_password": "x"}),
            "sasl_plain_password",
        ),
        (Fields("steward", host="a:9092", extra={"bootstrap.servers": "b:9092"}), "bootstrap_servers"),
    ],
)
def test_a_field_and_the_extra_do_not_say_two_things(given: Fields, key: str) -> None:
    with pytest.raises(SettingError, match=f"connection steward has {key} twice, in a connection field") as refused:
        access(given)
    assert "s3cret" not in str(refused.value)


def test_a_login_that_a_kafka_connection_does_not_use_is_refused() -> None:
    kafka = Fields("kafka", login="me", extra={"bootstrap.servers": "a:9092"})
    with pytest.raises(SettingError, match=r"connection kafka has a login .* into its extra, as sasl\.username"):
        access(Fields("steward", extra={"kafka_conn_id": "kafka"}), kafka=kafka)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"host": ""}, "connection kafka names no bootstrap servers: enter host:port as its host"),
        ({"extra": {"trottle": 1}}, "connection kafka has 'trottle' in its extra"),
        ({"extra": {"workspace": "plans"}}, "workspace of the connection kafka is 'plans'; write an absolute path"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        access(Fields("kafka", **{"host": "a:9092", **given}))


def test_no_repr_shows_a_secret() -> None:
    given = Fields("kafka", host="a:9092", password="secret-word", extra={"ssl.key.password": "other-word"})
    shown = repr(given) + repr(access(given))
    assert "secret-word" not in shown
    assert "other-word" not in shown


def test_the_kips_documents_may_live_in_the_brokers_zookeeper() -> None:
    assert access(Fields("kafka", host="a:9092")).zookeeper is None
    login = {"zookeeper_user": "steward", "zookeeper_password": "secret"}
    places = {"journal": "sqlite:////rows.db", "zookeeper": "z:2181/kafka", "zookeeper_tls": {"use_ssl": True}}
    found = access(with_extra({**places, **login}))
    assert found.zookeeper == ZooKeeperOptions("z:2181/kafka", "steward:secret", {"use_ssl": True})
    assert "secret" not in repr(found)


@pytest.mark.parametrize("extra", [{"zookeeper": "z:2181"}, {"zookeeper": "z:2181", "journal": "zookeeper"}])
def test_rows_in_a_file_of_one_host_are_refused_beside_documents_that_all_hosts_share(extra: dict[str, Any]) -> None:
    words = (
        "names no journal, and beside documents in ZooKeeper, .* in /airflow/kafka_steward/journal.db, a file on one"
    )
    with pytest.raises(SettingError, match=words):
        access(with_extra(extra))
    shared = {**extra, "journal": "postgresql://db/steward"}
    assert access(with_extra(shared)).journal == "postgresql://db/steward"


@pytest.mark.parametrize(
    ("executor", "local"),
    [
        ("LocalExecutor", True),
        ("airflow.executors.local_executor.LocalExecutor", True),
        ("here:LocalExecutor", True),
        ("CeleryExecutor", False),
        ("LocalExecutor, KubernetesExecutor", False),
        ("NotLocalExecutor", False),
    ],
)
def test_the_default_journal_is_for_executors_that_run_tasks_where_the_scheduler_is(executor: str, local: bool) -> None:
    given = Fields("kafka", host="a:9092")
    if local:
        assert (
            cluster_config(given, None, {}, {}, HOME, executor=executor).journal
            == "sqlite:////airflow/kafka_steward/journal.db"
        )
        return
    with pytest.raises(
        SettingError, match=f"with the executor {executor}, whose tasks run on other hosts, .* set journal"
    ):
        cluster_config(given, None, {}, {}, HOME, executor=executor)
    by_section = {"journal": "postgresql://db/steward"}
    assert cluster_config(given, None, by_section, {}, HOME, executor=executor).journal == "postgresql://db/steward"


def test_controllers_are_addresses_with_commas() -> None:
    assert access(with_extra({"controllers": " c1:9093, c2:9093"})).controllers == "c1:9093,c2:9093"
    assert access(with_extra({})).controllers == ""
    with pytest.raises(SettingError, match="controllers of the connection kafka have 'c2'; write host:port"):
        access(with_extra({"controllers": "c1:9093,c2"}))


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"zookeeper": "/kafka"}, "The setting zookeeper is empty"),
        ({"journal": "zookeeper"}, "is to be in ZooKeeper, which is not configured; add zookeeper"),
        ({"zookeeper": "z:2181", "zookeeper_tls": "yes"}, "zookeeper_tls of the connection kafka is not a JSON object"),
        ({"zookeeper": "z:2181", "zookeeper_user": "me"}, "has a zookeeper_user and no zookeeper_password; set both"),
        (
            {"zookeeper": "z:2181", "zookeeper_password": "me"},
            "has a zookeeper_password and no zookeeper_user; set both",
        ),
        (
            {"zookeeper": "z:2181", "zookeeper_user": "a:b", "zookeeper_password": "c"},
            "zookeeper_user of the connection kafka contains a colon",
        ),
        ({"zookeeper_user": "me", "zookeeper_password": "c"}, "has zookeeper_user, which needs zookeeper"),
        ({"zookeeper_tls": {"ca": "/ca.pem"}}, "has zookeeper_tls, which needs zookeeper; add zookeeper"),
    ],
)
def test_a_zookeeper_that_cannot_be_used_is_refused(extra: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        access(with_extra(extra))


CAPS = ("max_in_per_broker", "max_out_per_broker", "max_in_flight", "heal_chunk_size", "max_attempts")

#: Settings that are refused together, and the sentence.
CONTRADICTIONS = [
    ({"chunk_pause": 60}, "set window to chunk, or chunk_pause to 0"),
    ({"chunk_pause": 60, "window": "sliding"}, "set window to chunk, or chunk_pause to 0"),
    ({"throttle_fraction": 0.5}, "network_bandwidth, which is not set"),
    ({"stall_after": 3}, "set stall_after to at least twice step_interval"),
]


@pytest.mark.parametrize("name", CAPS)
@pytest.mark.parametrize("value", [0, -1, "0", -(2**63)])
def test_a_cap_below_one_is_refused_from_every_source(name: str, value: object) -> None:
    sentence = rf"^The setting {name} is .*; it must be at least 1\.$"
    with pytest.raises(SettingError, match=sentence):
        Settings.of({"min_free": 0, name: value})
    with pytest.raises(SettingError, match=sentence):
        Settings.refuse_wrong({name: value})
    for given in ({"section": {name: value}}, {"overrides": {name: value}}):
        with pytest.raises(SettingError, match=sentence):
            access(Fields("kafka", host="a:9092"), **given)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=sentence):
        access(with_extra({name: value}))


@pytest.mark.parametrize("name", CAPS)
def test_none_is_no_cap_of_zero(name: str) -> None:
    assert getattr(Settings.of({"min_free": 0, name: None}), name) == SETTINGS[name].default >= 1


@pytest.mark.parametrize(("given", "sentence"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused_in_the_extra_and_in_a_run(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        access(with_extra(given))
    with pytest.raises(SettingError, match=sentence):
        access(Fields("kafka", host="a:9092"), overrides=given)


def test_a_run_that_leaves_the_chunks_of_the_connection_is_refused_and_not_run_without_its_pause() -> None:
    """KIP-46's pause is kept or refused, and never ignored."""
    given = with_extra({"window": "chunk", "chunk_pause": 60})
    assert access(given).settings.chunk_pause == 60
    with pytest.raises(SettingError, match="set window to chunk, or chunk_pause to 0"):
        access(given, overrides={"window": "sliding"})
    assert access(given, overrides={"window": "sliding", "chunk_pause": 0}).settings.window == "sliding"


def test_a_throttle_that_is_not_there_is_refused_and_not_taken_for_none() -> None:
    for value in (-1, "-1", 0.5, "unlimited", [1]):
        with pytest.raises(SettingError, match=r"^The setting throttle is "):
            access(with_extra({"throttle": value}))


def no_connection(conn_id: str) -> NoReturn:
    raise AssertionError(conn_id)


def test_a_url_is_taken_as_it_is() -> None:
    url = "postgresql+psycopg://steward:word@db:5433/steward"
    assert journal_url(url, no_connection).render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("kind", "given", "schema", "url"),
    [
        ("postgres", Fields("pg", host="db", login="me", password="p@ss:w/rd"), "steward",
         "postgresql+psycopg://me:p%40ss%3Aw%2Frd@db/steward"),
        ("postgres", Fields("pg", host="db", port=5433), "steward", "postgresql+psycopg://db:5433/steward"),
        ("postgres", Fields("pg", host="/run/postgresql", login="me"), "steward",
         "postgresql+psycopg://me@/steward?host=%2Frun%2Fpostgresql"),
        ("postgres", Fields("pg", host="db", extra={"sslmode": "require", "connect_timeout": 3, "sslcert": None}), "s",
         "postgresql+psycopg://db/s?connect_timeout=3&sslmode=require"),
        ("sqlite", Fields("lite", host="/var/lib/journal.db"), None, "sqlite:////var/lib/journal.db"),
    ],
)  # fmt: skip
def test_a_connections_id_stands_for_its_database(kind: str, given: Fields, schema: str | None, url: str) -> None:
    found = journal_url(given.conn_id, lambda _: (kind, given, schema))
    assert found.render_as_string(hide_password=False) == url


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        ("postgres", Fields("pg", extra={"sslmod": "require"}), "connection pg, whose extra has 'sslmod', which libpq"),
        ("postgres", Fields("pg", extra={"cursor": "dictcursor"}), "extra has 'cursor', which libpq does not know"),
        ("postgres", Fields("pg", extra={"password": "s3cret"}), "'password' in its extra, .* connection's password"),
        ("postgres", Fields("pg", extra={"dbname": "x"}), "'dbname' in its extra, .* as the connection's schema"),
        ("postgres", Fields("pg", extra={"keepalives": True}), "'keepalives' in its extra, .* takes texts and numbers"),
        ("postgres", Fields("pg", extra={"sslmode": {"s3cret": 1}}), "'sslmode' in its extra, which cannot be used"),
        ("sqlite", Fields("lite", password="s3cret"), "sqlite connection lite, whose password nothing uses"),
        ("sqlite", Fields("lite", extra={"mode": "ro"}), "sqlite connection lite, whose extra nothing uses"),
    ],
)  # fmt: skip
def test_what_nothing_would_use_is_refused(kind: str, given: Fields, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence) as refused:
        journal_url(given.conn_id, lambda _: (kind, given, "steward"))
    assert "s3cret" not in str(refused.value)


def test_a_connection_of_another_kind_is_refused() -> None:
    with pytest.raises(SettingError, match=r"journal is set to the connection web, whose type is http"):
        journal_url("web", lambda _: ("http", Fields("web"), None))


@pytest.mark.parametrize("url", ["://me:secret-word@db", "postgresql://me:secret-word@db:port/steward"])
def test_an_unreadable_url_is_refused_without_repeating_its_password(url: str) -> None:
    with pytest.raises(SettingError, match=r"The journal's URL cannot be read") as caught:
        journal_url(url, no_connection)
    assert "secret-word" not in "".join(traceback.format_exception(caught.value))


def test_a_database_of_its_own_is_accepted_and_not_created_by_looking(tmp_path: Path) -> None:
    refuse_airflow_database(make_url(f"sqlite:///{tmp_path}/journal.db"))
    assert not (tmp_path / "journal.db").exists()


def test_a_file_that_cannot_be_looked_at_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_text("This is no database, and long enough to be taken for one." * 99)
    with pytest.raises(JournalError, match=r"journal\.db cannot be written .*file is not a database"):
        refuse_airflow_database(make_url(f"sqlite:///{tmp_path}/journal.db"))


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://db/x", "names the database mysql; the journal is kept in SQLite or PostgreSQL"),
        ("postgresql+asyncpg://db/x", r"names the driver asyncpg, .* write postgresql\+psycopg://"),
        ("postgresql://db/x?sslmod=require", "has the parameter sslmod, which libpq does not know"),
    ],
)
def test_a_url_that_the_journal_cannot_be_at_does_not_pass(url: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        refuse_airflow_database(make_url(url))


def test_a_journal_in_memory_is_refused() -> None:
    with pytest.raises(SettingError, match=r"must outlive the process"):
        refuse_airflow_database(make_url("sqlite://"))


def test_the_secrets_of_a_setting_are_known_before_it_is_used() -> None:
    assert find_secrets("postgresql://me:secret-word@db/x?sslpassword=other-word") == ["secret-word", "other-word"]
    assert find_secrets("postgresql://me:secret-word@db:port/x") == ["postgresql://me:secret-word@db:port/x"]
    assert find_secrets("my_connection") == find_secrets("sqlite:////var/lib/journal.db") == find_secrets(None) == []


ELSEWHERE = {"id": "bb", "place": "sqlite:////airflow/journal.db on the host triggerer-1"}


def run_started_by(*payloads: Any) -> Any:
    """A task's context in a run that these events of watches started."""
    found = context()
    found["dag_run"].consumed_asset_events = [
        SimpleNamespace(extra={"payload": payload}, timestamp=second) for second, payload in enumerate(payloads)
    ]
    return found


def hook_in(run: Any, conn_id: str) -> StewardHook:
    return hook_of(SimpleNamespace(conn_id=conn_id, settings={}), run)


def test_a_run_refuses_another_journal_than_its_watch_has(connect: Connect) -> None:
    run = run_started_by({"conn_id": "another", "journal": {"id": "cc"}}, {"conn_id": connect(), "journal": ELSEWHERE})
    with pytest.raises(
        WrongJournal,
        match=r"started with the journal at .* on the host triggerer-1, and this process opened another one",
    ):
        hook_in(run, "kafka_test").journal("c1")


def test_of_several_events_the_newest_names_the_journal(connect: Connect) -> None:
    run = run_started_by({"conn_id": connect(), "journal": ELSEWHERE}, {"conn_id": "kafka_test"})
    run["dag_run"].consumed_asset_events.reverse()
    with hook_in(run, "kafka_test").journal("c1") as journal:
        assert journal.identity is not None


@pytest.mark.parametrize(
    "payload",
    [
        {"conn_id": "another", "journal": ELSEWHERE},
        {"conn_id": "kafka_test"},
        {"conn_id": "kafka_test", "journal": 5},
        [],
    ],
)
def test_an_event_that_says_nothing_of_this_journal_holds_up_nothing(connect: Connect, payload: Any) -> None:
    connect()
    with hook_in(run_started_by(payload), "kafka_test").journal("c1") as journal:
        assert journal.identity is not None


def test_a_run_goes_on_with_the_journal_of_its_watch(connect: Connect) -> None:
    with StewardHook(connect()).journal("c1") as theirs:
        assert theirs.identity is not None
        payload = {"conn_id": "kafka_test", "journal": theirs.identity.to_json()}
    with hook_in(run_started_by(payload), "kafka_test").journal("c1") as ours:
        assert ours.identity == theirs.identity


def test_a_trigger_opens_the_journal_of_its_task_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def open_and_fail(hook: StewardHook) -> None:
        opened.append(hook.expected_origin)
        raise WrongJournal("Another one.")

    monkeypatch.setattr(StewardHook, "open", open_and_fail)
    triggers: list[RunPlanTrigger | WaitTrigger] = [
        RunPlanTrigger("kafka", "aa", journal=ELSEWHERE),
        WaitTrigger("kafka", "ready", journal=ELSEWHERE),
    ]

    async def connect(thread: ClusterWorker) -> None:
        with pytest.raises(WrongJournal):
            await thread.submit(lambda _: None)
        thread.close()

    for trigger in triggers:
        asyncio.run(connect(type(trigger)(**trigger.serialize()[1])._thread))
    assert opened == [ELSEWHERE] * 2


WHO = Actor(person="ada")


def published(opened: ClusterSession, topic: str, folder: Path, partitions: int = 1) -> str:
    take_snapshot(opened.cluster, str(folder / "snapshot"), failed=(), now_ms=opened.journal.now_ms())
    snapshot = read_snapshot(str(folder / "snapshot"))
    moves = [Move(topic, each, (1, 2, 3), (4, 2, 3), 0, each, "given") for each in range(partitions)]
    proof = {"cluster_id": snapshot.cluster_id, "snapshot_digest": snapshot.digest, "operation": "apply", "options": {}}
    write_plan(str(folder / "plan"), plan_table(moves), proof)
    plan = read_plan(str(folder / "plan"))
    return publish_plan(ClusterContext(opened.cluster, opened.journal, opened.settings, WHO), plan).digest


def test_a_plan_is_carried_out_and_taken_back_by_the_journal_in_zookeeper(
    connect: Connect, zookeeper_sandbox: Sandbox, topic: str, tmp_path: Path
) -> None:
    extra = {"zookeeper": zookeeper_sandbox.zookeeper}
    conn_id = connect(host=zookeeper_sandbox.bootstrap, extra={**extra, "workspace": str(tmp_path)})
    zookeeper_sandbox.create_topics(topic, assignments={0: (1, 2, 3)})
    zookeeper = KazooClient(zookeeper_sandbox.zookeeper)
    zookeeper.start()
    try:
        with StewardHook(conn_id).open() as opened:
            assert isinstance(opened.journal.mailbox, ZkMailbox)
            digest = published(opened, topic, tmp_path)
            assert zookeeper.get_children("/admin/reassign_chunks")
            assert set(zookeeper.get_children("/steward")) == {"journal"}
            plan = opened.cluster, opened.journal, digest, opened.settings, WHO
            context = ClusterContext(opened.cluster, opened.journal, opened.settings, WHO)
            assert to_the_end(PlanRunner(context, digest)).ended
            eventually(lambda: is_at(opened, TopicPartition(topic, 0), (4, 2, 3)))  # a broker hears of it later
            assert to_the_end(CancelRunner(*plan, scope="plan", reason="a test")).ended
            eventually(lambda: is_as_before(opened, digest), within=30)
        # Nothing of ours is in the way of the next plan, or of the next test.
        assert not zookeeper.get_children("/admin/reassign_chunks")
    finally:
        for path in ("/steward", "/admin/reassign_chunks", "/admin/reassignments"):
            zookeeper.delete(path, recursive=True) if zookeeper.exists(path) else None
        zookeeper.stop()
        zookeeper.close()


def test_with_credentials_kafka_takes_away_what_was_submitted_by_its_znode(
    connect: Connect, zookeeper_sandbox: Sandbox, topic: str, tmp_path: Path
) -> None:
    login = {"zookeeper_user": "steward", "zookeeper_password": "s3cret", "submission": "legacy"}
    extra = {"zookeeper": zookeeper_sandbox.zookeeper, "workspace": str(tmp_path), **login}
    conn_id = connect(host=zookeeper_sandbox.bootstrap, extra=extra)
    zookeeper_sandbox.create_topics(topic, assignments=dict.fromkeys(range(3), (1, 2, 3)))
    zookeeper = KazooClient(zookeeper_sandbox.zookeeper, auth_data=[("digest", "steward:s3cret")])
    zookeeper.start()
    try:
        with StewardHook(conn_id).open() as opened:
            # Kafka makes the node shorter when the first has arrived, and deletes it after the last.
            digest = published(opened, topic, tmp_path, partitions=3)
            assert to_the_end(
                PlanRunner(ClusterContext(opened.cluster, opened.journal, opened.settings, WHO), digest)
            ).ended
            eventually(lambda: is_at(opened, TopicPartition(topic, 0), (4, 2, 3)))
        eventually(lambda: is_gone(zookeeper, paths.REASSIGN_PARTITIONS), within=30)
        assert zookeeper.get_acls(paths.JOURNAL)[0] != zookeeper.get_acls("/admin")[0] == OPEN_ACL_UNSAFE
    finally:
        for path in ROOTS:
            zookeeper.delete(path, recursive=True) if zookeeper.exists(path) else None
        zookeeper.stop()
        zookeeper.close()


def is_gone(zookeeper: KazooClient, path: str) -> None:
    assert zookeeper.exists(path) is None


def is_at(opened: ClusterSession, name: TopicPartition, replicas: Assignment) -> None:
    assert opened.cluster.snapshot([name.topic]).partitions[name].replicas == replicas


def is_as_before(opened: ClusterSession, digest: str) -> None:
    found = verify_undone(opened.cluster, opened.journal, digest)
    assert (found.ok, found.partitions, found.status) == (True, 1, "rolled_back"), found.sentence
