"""A connection's settings: translated without loss, or refused by name, and never shown."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from kafka_steward.cluster.connection import Secret, client_config, is_client_key, validate_config
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
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.secret", "x"),
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
    config = validate_config({"bootstrap_servers": "a:1, b:2", "bootstrap_timeout_ms": 5})
    assert config["bootstrap_servers"] == ["a:1", "b:2"]
    assert (config["bootstrap_timeout_ms"], config["request_timeout_ms"]) == (5, 15_000)


OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
LOGIN = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": "s3cret"}


SECURITY = [name for name in sorted(KafkaAdminClient.DEFAULT_CONFIG) if name.startswith(("sasl_", "ssl_"))]


@pytest.mark.parametrize("name", SECURITY)
def test_a_security_setting_that_the_protocol_does_not_use_is_refused(name: str) -> None:
    """Whatever kafka-python has for security: where it would be dropped, it is an error that says what to set."""
    own = name.partition("_")[0].upper()
    value = True if name == "ssl_check_hostname" else LOGIN.get(name, "x")
    for protocol in ("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"):
        if protocol.startswith(own) or protocol.endswith(own):
            continue
        sentence = (
            rf"^The Kafka setting {name} is given, and the security protocol {protocol or 'PLAINTEXT'} does not use "
            rf"it; set security_protocol to (SASL_)?SSL.*, or remove {name}\.$"
        )
        with pytest.raises(SettingError, match=sentence) as refused:
            validate_config({"bootstrap_servers": "a:1", "security_protocol": protocol, name: value})
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("mechanism", "name"),
    [
        ("PLAIN", "sasl_kerberos_service_name"),
        ("SCRAM-SHA-512", "sasl_oauth_token_provider"),
        ("GSSAPI", "sasl_plain_password"),
        ("OAUTHBEARER", "sasl_plain_username"),
        ("AWS_MSK_IAM", "sasl_plain_username"),
    ],
)
def test_a_setting_that_the_mechanism_does_not_use_is_refused(mechanism: str, name: str) -> None:
    needed = {"sasl_oauth_token_provider": "json.dumps"} if mechanism == "OAUTHBEARER" else {}
    needed |= LOGIN if mechanism in ("PLAIN", "SCRAM-SHA-512") else {}
    given = {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        **needed,
        "sasl_mechanism": mechanism,
        name: "x",
    }
    with pytest.raises(
        SettingError, match=f"{name} is given, and the mechanism {mechanism} does not use it; set another"
    ):
        validate_config(given)


@pytest.mark.parametrize("value", ["false", "off", False])
def test_a_switch_means_what_it_says(value: object) -> None:
    given = {"bootstrap_servers": "a:1", "security_protocol": "SSL", "ssl_check_hostname": value}
    assert validate_config(given)["ssl_check_hostname"] is False


def test_numbers_may_be_texts() -> None:
    assert validate_config({"bootstrap_servers": "a:1", "request_timeout_ms": "2e4"})["request_timeout_ms"] == 20_000


def test_two_keys_do_not_say_two_things_of_the_security() -> None:
    assert client_config({"sasl.username": "me", "sasl_plain_username": "me"}) == {"sasl_plain_username": "me"}
    with pytest.raises(SettingError, match=r"is given twice, .*, once by sasl_plain_username") as refused:
        client_config({"sasl.username": "me", "sasl_plain_username": "you"})
    assert "you" not in str(refused.value)


def test_a_token_provider_is_found_by_its_path() -> None:
    given = {"oauth_cb": "json.dumps", "sasl.oauthbearer.config": "scope", "sasl.oauthbearer.method": "default"}
    config = validate_config({"bootstrap_servers": "a:1", **OAUTH, **client_config(given)})
    assert config["sasl_oauth_token_provider"].fetch() == '"scope"'
    assert "sasl_oauth_config" not in config
    own = config["sasl_oauth_token_provider"]
    assert validate_config({"bootstrap_servers": "a:1", **OAUTH, "sasl_oauth_token_provider": own}) == config


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
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAN"},
            "sasl_mechanism is PLAN; it takes one of PLAIN",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_plain_username is missing"),
        ({"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}, "ssl_cafile names /nowhere/ca.pem"),
        ({"request_timeout_ms": "soon"}, "request_timeout_ms is 'soon'; it takes a whole number"),
        ({"request_timeout_ms": 0.5}, "request_timeout_ms is 0.5; it takes a whole number"),
        ({"request_timeout_ms": True}, "request_timeout_ms is True; it takes a whole number"),
        ({"bootstrap_timeout_ms": float("nan")}, "bootstrap_timeout_ms is nan; it takes a whole number"),
        ({"bootstrap_timeout_ms": 0}, "bootstrap_timeout_ms is 0; it must lie between 1 and"),
        ({"retry_backoff_ms": "1e30"}, "retry_backoff_ms is '1e30'; it must lie between 1 and"),
        (
            {"security_protocol": "SSL", "ssl_check_hostname": "maybe"},
            "ssl_check_hostname is 'maybe'; it takes true",
        ),
        ({"security_protocol": "SSL", "ssl_context": "x"}, "ssl_context is not an SSLContext"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k"}, "ssl_keyfile has no effect without ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_password": "s"}, "ssl_password has no effect without ssl_certfile"),
        ({**OAUTH, "sasl_oauth_token_provider": 5}, "sasl_oauth_token_provider is not a dotted path"),
        ({**OAUTH, "sasl_oauth_token_provider": "x"}, "token provider 'x' is not a dotted path"),
        ({**OAUTH}, "sasl_oauth_token_provider is missing; OAUTHBEARER needs the dotted path of a class or function"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
            "gssapi, which is missing here; install gssapi.",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"},
            r"botocore, which .* install airflow-provider-kafka-steward\[msk\].",
        ),
        ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"}, "set security_protocol to SASL_SSL"),
    ],
)
def test_a_configuration_that_cannot_work_is_one_sentence(
    config: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_steward.cluster.connection.find_spec", lambda _: None)
    with pytest.raises(SettingError, match=named) as raised:
        validate_config(
            {"bootstrap_servers": "a:1", **config} if "bootstrap_servers" not in config and config else config
        )
    assert str(raised.value).endswith(".")


def test_files_that_exist_and_addresses_of_all_kinds_are_accepted(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    servers = ["host", "host:9092", "127.0.0.1:9092", "[::1]:9092", "::1"]
    config = {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_cafile": str(authority)}
    assert validate_config(config)["bootstrap_servers"] == servers


def test_a_secret_is_usable_and_does_not_show_itself() -> None:
    credentials = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "steward",
        "sasl_plain_password": "open sesame",
    }
    config = validate_config({"bootstrap_servers": "a:1", **credentials})
    assert config["sasl_plain_password"] == "open sesame"
    assert "sesame" not in repr(config)
    assert repr(Secret("x")) == repr(Secret("another"))
