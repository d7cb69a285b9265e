"""Brokers that ask for a password, or for a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.cluster_layout import ClusterLayout, pick_ports

PASSWORD = "open-sesame"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One KRaft broker with a second listener that asks for a password (SASL PLAIN); that listener's address."""
    login = f'{LOGIN} required user_steward="{PASSWORD}";'
    with _guarded(tmp_path_factory.mktemp("guarded"), "PLAIN", login) as address:
        yield address


@pytest.fixture(scope="module")
def bearer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same, which asks for a token (OAUTHBEARER) and takes those that nobody signed, as Kafka does for tests."""
    login = f'{TOKEN_LOGIN} required unsecuredLoginStringClaim_sub="broker";'
    with _guarded(tmp_path_factory.mktemp("bearer"), "OAUTHBEARER", login) as address:
        yield address


@contextmanager
def _guarded(folder: Path, mechanism: str, login: str) -> Iterator[str]:
    layout = ClusterLayout.of(folder, brokers=1, racks=1, session_timeout_ms=3000, overrides={})
    address = f"127.0.0.1:{pick_ports(1)[0]}"
    listeners = f"PLAINTEXT://{layout.brokers[1].address},GUARDED://{address}"
    overrides = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        f"listener.name.guarded.{mechanism.lower()}.sasl.jaas.config": login,
    }
    with Sandbox("kraft", replace(layout, overrides=overrides), temporary=False) as sandbox:
        sandbox.start()
        yield address
