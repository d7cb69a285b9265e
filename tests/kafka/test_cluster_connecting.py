"""Connecting: each way in which it can fail is one sentence, soon, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
import logging
import socket
import sys
import threading
import time
from types import ModuleType
from typing import Any

import pytest

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.cluster.connection import client_config
from kafka_steward.errors import AuthenticationFailed, ClusterUnreachable, SettingError, WrongCluster
from kafka_steward.sandbox import Sandbox
from tests.sasl_broker import PASSWORD, bearer, guarded

__all__ = ["bearer", "guarded"]


def credentials(address: str, password: str, **changes: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": address,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "steward",
        "sasl_plain_password": password,
        **changes,
    }


def io_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kafka-io")]


@pytest.mark.kraft
def test_the_right_password_opens(guarded: str) -> None:
    with KafkaCluster(credentials(guarded, PASSWORD)) as cluster:
        assert set(cluster.live_brokers()) == {1}
        assert cluster.snapshot().live == {1}
        assert PASSWORD not in repr(cluster)


@pytest.mark.kraft
def test_a_wrong_password_is_known_at_once(guarded: str) -> None:
    before, began = io_threads(), time.monotonic()
    with pytest.raises(
        AuthenticationFailed, match=f"at {guarded}: Kafka says .*Invalid username or password"
    ) as raised:
        KafkaCluster(credentials(guarded, "guess"))
    assert time.monotonic() - began < 6  # of 8 s that it would try
    assert "guess" not in str(raised.value)
    assert io_threads() == before


@pytest.mark.kraft
def test_a_mechanism_that_the_server_does_not_have_is_known_at_once(guarded: str) -> None:
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match="check the user name, the password and the mechanism"):
        KafkaCluster(credentials(guarded, PASSWORD, sasl_mechanism="SCRAM-SHA-512"))
    assert time.monotonic() - began < 6  # of 8 s that it would try


@pytest.mark.kraft
def test_a_password_that_is_refused_by_one_of_several_servers_is_not_masked_by_dead_ones(guarded: str) -> None:
    with pytest.raises(AuthenticationFailed):
        KafkaCluster(credentials(f"127.0.0.1:1,{guarded}", "guess"))


@pytest.mark.kraft
def test_no_password_where_one_is_needed_is_unreachable_with_advice(guarded: str) -> None:
    with pytest.raises(ClusterUnreachable, match="security protocol"):
        KafkaCluster({"bootstrap_servers": guarded, "bootstrap_timeout_ms": 1500})


@pytest.mark.kraft
def test_a_password_is_not_logged_even_at_debug(guarded: str, caplog: pytest.LogCaptureFixture) -> None:
    loggers = ["kafka", "kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser"]
    levels = {name: logging.getLogger(name).level for name in loggers}
    try:
        for name in loggers:
            logging.getLogger(name).setLevel(logging.DEBUG)
        with KafkaCluster(credentials(guarded, PASSWORD)) as cluster:
            cluster.live_brokers()
        assert "kafka" in {record.name.partition(".")[0] for record in caplog.records}
        assert PASSWORD not in caplog.text
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def unsigned_token(_config: str | None) -> tuple[str, float]:
    """A token of the user steward that nobody signed, and when it expires: for a connection's `oauth_cb`."""
    expires = time.time() + 600
    parts = ({"alg": "none"}, {"sub": "steward", "iat": time.time() - 1, "exp": expires})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return f"{'.'.join(encoded)}.", expires


@pytest.fixture
def token_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("company_tokens")
    monkeypatch.setitem(sys.modules, "company_tokens", module)
    return module


@pytest.mark.kraft
@pytest.mark.ci
def test_a_token_opens(bearer: str, token_module: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    given: list[str] = []

    def token(config: str | None) -> tuple[str, float]:
        given.append(unsigned_token(config)[0])
        return given[-1], time.time() + 600

    token_module.__dict__["token"] = token
    extra = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "oauthbearer", "oauth_cb": "company_tokens.token"}
    with KafkaCluster({"bootstrap_servers": bearer, **client_config(extra)}) as cluster:
        assert set(cluster.live_brokers()) == {1}
        assert cluster.snapshot().live == {1}
    assert len(given) == 1  # it was kept for the second connection
    assert given[0] not in caplog.text


@pytest.mark.kraft
def test_a_token_that_is_refused_is_known_at_once(bearer: str, token_module: ModuleType) -> None:
    token_module.__dict__["token"] = lambda: "forged"
    config = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": "company_tokens.token"}
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed, match=f"Authentication failed at {bearer}") as refused:
        KafkaCluster({"bootstrap_servers": bearer, "security_protocol": "SASL_PLAINTEXT", **config})
    assert time.monotonic() - began < 6  # of 8 s that it would try
    assert "forged" not in str(refused.value)


@pytest.mark.process
def test_servers_that_are_down_are_named_within_ten_seconds_and_no_thread_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before, began = io_threads(), time.monotonic()
    with pytest.raises(ClusterUnreachable, match=r"No Kafka server at 127\.0\.0\.1:1, localhost:2 answered within 8 s"):
        KafkaCluster({"bootstrap_servers": "127.0.0.1:1,localhost:2"})
    assert time.monotonic() - began < 10
    assert io_threads() == before
    assert not caplog.records


@pytest.mark.process
def test_a_server_that_hangs_does_not_keep_us_longer_than_one_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterUnreachable, match=f"No Kafka server at {address} answered within 1 s"):
            KafkaCluster({"bootstrap_servers": address, "bootstrap_timeout_ms": 1000})


def test_a_setting_that_kafka_does_not_know_is_named() -> None:
    with pytest.raises(SettingError, match="bootstrap_server is unknown"):
        KafkaCluster({"bootstrap_server": "127.0.0.1:1"})


def test_a_cluster_with_another_id_is_refused_and_the_connection_closed(sandbox: Sandbox) -> None:
    before = io_threads()
    with pytest.raises(WrongCluster, match=r"answers as cluster \S+, but another was expected"):
        KafkaCluster({"bootstrap_servers": sandbox.bootstrap}, expected_cluster_id="another")
    assert io_threads() == before


def test_a_connection_that_suddenly_answers_as_another_cluster_is_refused(sandbox: Sandbox) -> None:
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        cluster._transport.cluster_id = "another"
        for look in (cluster.snapshot, cluster.live_brokers, lambda: cluster.live_views([1])):
            with pytest.raises(WrongCluster):
                look()


def test_a_closed_cluster_says_so_and_leaves_no_thread(sandbox: Sandbox) -> None:
    before = io_threads()
    with KafkaCluster({"bootstrap_servers": sandbox.bootstrap}) as cluster:
        assert len(io_threads()) == len(before) + 1
    assert io_threads() == before
    with pytest.raises(ClusterUnreachable, match="was closed"):
        cluster.live_brokers()
