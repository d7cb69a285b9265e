"""A broker that asks for a password."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.layout import Layout
from kafka_steward.sandbox.ports import pick_ports

PASSWORD = "open-sesame"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One KRaft broker with a second listener that asks for a password (SASL PLAIN); that listener's address."""
    layout = Layout.of(tmp_path_factory.mktemp("guarded"), brokers=1, racks=1, session_timeout_ms=3000, overrides={})
    address = f"127.0.0.1:{pick_ports(1)[0]}"
    listeners = f"PLAINTEXT://{layout.brokers[1].address},GUARDED://{address}"
    overrides = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f'{LOGIN} required user_steward="{PASSWORD}";',
    }
    with Sandbox("kraft", replace(layout, overrides=overrides), temporary=False) as sandbox:
        sandbox.start()
        yield address
