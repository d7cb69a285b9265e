"""What a connection, the section and overrides make together, or are refused for. Pure: no Airflow, no Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.hooks.cluster_config import ClusterConfig, ConnectionFields, cluster_config
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.settings import SETTINGS, Settings

HOME = Path("/airflow")


def access(
    given: ConnectionFields, *, kafka: ConnectionFields | None = None, section: Any = None, overrides: Any = None
) -> ClusterConfig:
    return cluster_config(given, kafka, section or {}, overrides or {}, HOME)


def test_the_host_holds_the_bootstrap_servers() -> None:
    assert access(ConnectionFields("kafka", host="b:9092, a:9092")).bootstrap == "a:9092,b:9092"


@pytest.mark.parametrize(
    ("host", "servers"),
    [
        ("broker1", "broker1:9093"),
        ("broker1, broker2:9092", "broker1:9093,broker2:9092"),
        ("[::1],[::2]:9092", "[::1]:9093,[::2]:9092"),
    ],
)
def test_a_port_of_its_own_is_for_servers_that_are_named_without_one(host: str, servers: str) -> None:
    assert access(ConnectionFields("kafka", host=host, port=9093)).client["bootstrap_servers"] == servers


def test_overrides_win_over_the_extra_which_wins_over_the_section() -> None:
    given = ConnectionFields("kafka", host="a:9092", extra={"throttle": 2, "window": "chunk", "workspace": "/extra/"})
    section = {"throttle": 1, "window": "sliding", "heal_chunk_size": 7, "workspace": "/section"}
    merged = access(given, section=section, overrides={"throttle": 3})
    assert (merged.settings.throttle, merged.settings.window, merged.settings.heal_chunk_size) == (3, "chunk", 7)
    assert merged.workspace == "/extra"


def test_the_extra_takes_the_kips_dotted_names() -> None:
    given = ConnectionFields("kafka", host="a:9092", extra={"kafka.heal.chunk.size": 9})
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
    client = access(ConnectionFields("kafka", host="a:9092", login="me", password="secret-word", extra=extra)).client
    assert client["security_protocol"] == "SASL_SSL"
    assert client["ssl_cafile"] == "/ca.pem"
    assert (client["sasl_plain_username"], client["sasl_plain_password"]) == ("me", "secret-word")


def test_a_kafka_connection_is_reused_and_ours_wins_over_it() -> None:
    kafka = ConnectionFields(
        "kafka", extra={"bootstrap.servers": "other:9092", "sasl.username": "them", "group.id": "ignored"}
    )
    client = access(ConnectionFields("steward", extra={"kafka_conn_id": "kafka"}, login="me"), kafka=kafka).client
    assert client["bootstrap_servers"] == "other:9092"
    assert client["sasl_plain_username"] == "me"


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (ConnectionFields("steward", host="a:9092", login="me", extra={"sasl.username": "you"}), "sasl_plain_username"),
        (
            ConnectionFields("steward", host="a:9092", password="s3cret", extra={"sasl_plain_password": "x"}),
            "sasl_plain_password",
        ),
        (ConnectionFields("steward", host="a:9092", extra={"bootstrap.servers": "b:9092"}), "bootstrap_servers"),
    ],
)
def test_a_field_and_the_extra_do_not_say_two_things(given: ConnectionFields, key: str) -> None:
    with pytest.raises(SettingError, match=f"connection steward has {key} twice, in a connection field") as refused:
        access(given)
    assert "s3cret" not in str(refused.value)


def test_a_login_that_a_kafka_connection_does_not_use_is_refused() -> None:
    kafka = ConnectionFields("kafka", login="me", extra={"bootstrap.servers": "a:9092"})
    with pytest.raises(SettingError, match=r"connection kafka has a login .* into its extra, as sasl\.username"):
        access(ConnectionFields("steward", extra={"kafka_conn_id": "kafka"}), kafka=kafka)


def test_no_bootstrap_servers_is_one_sentence() -> None:
    with pytest.raises(SettingError, match=r"connection kafka names no bootstrap servers: enter host:port as its host"):
        access(ConnectionFields("kafka"))


def test_a_misspelled_key_is_named() -> None:
    with pytest.raises(SettingError, match=r"connection kafka has 'trottle' in its extra"):
        access(ConnectionFields("kafka", host="a:9092", extra={"trottle": 1}))


def test_a_relative_workspace_is_refused() -> None:
    with pytest.raises(SettingError, match=r"workspace of the connection kafka is 'plans'; write an absolute path"):
        access(ConnectionFields("kafka", host="a:9092", extra={"workspace": "plans"}))


def test_no_repr_shows_a_secret() -> None:
    given = ConnectionFields("kafka", host="a:9092", password="secret-word", extra={"ssl.key.password": "other-word"})
    shown = repr(given) + repr(access(given))
    assert "secret-word" not in shown
    assert "other-word" not in shown


def test_the_kips_documents_may_live_in_the_brokers_zookeeper() -> None:
    assert access(ConnectionFields("kafka", host="a:9092")).zookeeper is None
    login = {"zookeeper_user": "steward", "zookeeper_password": "secret"}
    places = {"journal": "sqlite:////rows.db", "zookeeper": "z:2181/kafka", "zookeeper_tls": {"use_ssl": True}}
    found = access(ConnectionFields("kafka", host="a:9092", extra={**places, **login}))
    assert found.zookeeper == ZooKeeperOptions("z:2181/kafka", "steward:secret", {"use_ssl": True})
    assert "secret" not in repr(found)


@pytest.mark.parametrize("extra", [{"zookeeper": "z:2181"}, {"zookeeper": "z:2181", "journal": "zookeeper"}])
def test_rows_in_a_file_of_one_host_are_refused_beside_documents_that_all_hosts_share(extra: dict[str, Any]) -> None:
    words = (
        "names no journal, and beside documents in ZooKeeper, .* in /airflow/kafka_steward/journal.db, a file on one"
    )
    with pytest.raises(SettingError, match=words):
        access(ConnectionFields("kafka", host="a:9092", extra=extra))
    shared = {**extra, "journal": "postgresql://db/steward"}
    assert access(ConnectionFields("kafka", host="a:9092", extra=shared)).journal == "postgresql://db/steward"


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
    given = ConnectionFields("kafka", host="a:9092")
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
        (
            {"zookeeper_user": "me", "zookeeper_password": "c"},
            "has zookeeper_user, which needs zookeeper",
        ),
        (
            {"zookeeper_tls": {"ca": "/ca.pem"}},
            "has zookeeper_tls, which needs zookeeper; add zookeeper",
        ),
    ],
)
def test_a_zookeeper_that_cannot_be_used_is_told(extra: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092", extra=extra))


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
        Settings.of({name: value})
    with pytest.raises(SettingError, match=sentence):
        Settings.refuse_wrong({name: value})
    for given in ({"section": {name: value}}, {"overrides": {name: value}}):
        with pytest.raises(SettingError, match=sentence):
            access(ConnectionFields("kafka", host="a:9092"), **given)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092", extra={name: value}))


@pytest.mark.parametrize("name", CAPS)
@pytest.mark.parametrize("value", [0.5, "0.9", "", "none", None])
def test_a_cap_that_is_no_whole_number_is_refused_and_none_is_no_cap_of_zero(name: str, value: object) -> None:
    if value is None:
        assert getattr(Settings.of({name: None}), name) == SETTINGS[name].default >= 1
        return
    with pytest.raises(SettingError, match=rf"^The setting {name} is .*; it takes a whole number\.$"):
        access(ConnectionFields("kafka", host="a:9092", extra={name: value}))


@pytest.mark.parametrize(("given", "sentence"), CONTRADICTIONS)
def test_settings_that_contradict_each_other_are_refused_in_the_extra_and_in_a_run(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092", extra=given))
    with pytest.raises(SettingError, match=sentence):
        access(ConnectionFields("kafka", host="a:9092"), overrides=given)


def test_a_run_that_leaves_the_chunks_of_the_connection_is_refused_and_not_run_without_its_pause() -> None:
    """KIP-46's pause is kept or refused, and never ignored."""
    given = ConnectionFields("kafka", host="a:9092", extra={"window": "chunk", "chunk_pause": 60})
    assert access(given).settings.chunk_pause == 60
    with pytest.raises(SettingError, match="set window to chunk, or chunk_pause to 0"):
        access(given, overrides={"window": "sliding"})
    assert access(given, overrides={"window": "sliding", "chunk_pause": 0}).settings.window == "sliding"


def test_a_throttle_that_is_not_there_is_refused_and_not_taken_for_none() -> None:
    for value in (-1, "-1", 0.5, "unlimited", [1]):
        with pytest.raises(SettingError, match=r"^The setting throttle is "):
            access(ConnectionFields("kafka", host="a:9092", extra={"throttle": value}))
