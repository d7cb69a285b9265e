"""A connection's settings: translated without loss, or refused by name, and never shown."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kafka_steward.cluster.connection import Secret, checked_config, client_config, is_client_key
from kafka_steward.errors import SettingError
from kafka_steward.settings import Settings


def test_an_airflow_kafka_connection_is_translated_key_by_key() -> None:
    extra = {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "scram-sha-512",
        "sasl.username": "steward",
        "sasl.password": "open sesame",
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "socket.timeout.ms": "20000",
        "client.id": "me",
    }
    assert client_config(extra) == {
        "bootstrap_servers": "a:9092,b:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "steward",
        "sasl_plain_password": "open sesame",
        "ssl_cafile": "/etc/ca.pem",
        "ssl_check_hostname": False,
        "request_timeout_ms": 20_000,
        "client_id": "me",
    }


@pytest.mark.parametrize(
    "key", ["group.id", "auto.offset.reset", "enable.auto.commit", "linger.ms", "error_cb", "debug"]
)
def test_what_concerns_only_producers_and_consumers_is_left_out(key: str) -> None:
    assert client_config({key: "x"}) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.ca.pem", "-----BEGIN CERTIFICATE-----"),
        ("ssl.keystore.location", "/etc/store.p12"),
        ("sasl.oauthbearer.config", "x"),
        ("oauth_cb", "module.function"),
        ("enable.ssl.certificate.verification", "false"),
        ("no.such.key", 1),
    ],
)
def test_what_cannot_be_translated_is_refused_by_name_without_its_value(key: str, value: Any) -> None:
    with pytest.raises(SettingError, match=f"setting {key} has no equivalent") as raised:
        client_config({key: value})
    assert str(value) not in str(raised.value).replace(key, "")


def test_verification_that_is_asked_for_is_simply_the_default() -> None:
    assert client_config({"enable.ssl.certificate.verification": True}) == {}


def test_kafka_pythons_own_names_are_taken_as_they_are() -> None:
    assert client_config({"sasl_plain_username": "steward"}) == {"sasl_plain_username": "steward"}


@pytest.mark.parametrize("value", ["soon", None, -1])
def test_milliseconds_must_be_a_number(value: Any) -> None:
    with pytest.raises(SettingError, match=r"socket\.timeout\.ms"):
        client_config({"socket.timeout.ms": value})


def test_the_hook_can_tell_client_keys_from_its_own() -> None:
    places = ["zookeeper", "journal", "workspace", "kafka_conn_id", "cluster_id", "kafka.heal.chunk.size"]
    ours = [*places, *(knob.name for knob in fields(Settings))]
    assert not [key for key in ours if is_client_key(key)]
    assert all(
        map(is_client_key, ["sasl.password", "ssl.ca.pem", "security_protocol", "ssl_cafile", "socket.timeout.ms"])
    )


def test_our_defaults_give_way_to_what_is_given() -> None:
    config = checked_config({"bootstrap_servers": "a:1, b:2", "bootstrap_timeout_ms": 5})
    assert config["bootstrap_servers"] == ["a:1", "b:2"]
    assert (config["bootstrap_timeout_ms"], config["request_timeout_ms"]) == (5, 15_000)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
        ({}, "bootstrap_servers is empty"),
        ({"bootstrap_servers": "host:port"}, "'host:port'"),
        ({"bootstrap_server": "a:1", "bootstrap_servers": "a:1"}, "bootstrap_server is unknown"),
        ({"kafka_client": object(), "bootstrap_servers": "a:1"}, "kafka_client is unknown"),
        ({"security_protocol": "TLS"}, "security_protocol is 'TLS'"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is None"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAN"}, "sasl_mechanism is 'PLAN'"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_plain_username is missing"),
        ({"ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile names /nowhere/ca.pem"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(config: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingError, match=named) as raised:
        checked_config(
            {"bootstrap_servers": "a:1", **config} if "bootstrap_servers" not in config and config else config
        )
    assert str(raised.value).endswith(".")


def test_files_that_exist_and_addresses_of_all_kinds_are_accepted(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    servers = ["host", "host:9092", "127.0.0.1:9092", "[::1]:9092", "::1"]
    assert checked_config({"bootstrap_servers": servers, "ssl_cafile": str(authority)})["bootstrap_servers"] == servers


def test_a_secret_is_usable_and_does_not_show_itself() -> None:
    credentials = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "steward",
        "sasl_plain_password": "open sesame",
    }
    config = checked_config({"bootstrap_servers": "a:1", **credentials})
    assert config["sasl_plain_password"] == "open sesame"
    assert "sesame" not in repr(config)
    assert repr(Secret("x")) == repr(Secret("another"))
