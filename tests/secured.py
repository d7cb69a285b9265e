"""A KRaft cluster with ACLs (StandardAuthorizer), and a second listener that takes SCRAM over TLS."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)

from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.cluster import MODES
from kafka_steward.sandbox.kraft import KRaft
from kafka_steward.sandbox.layout import BrokerPlace, Layout
from kafka_steward.sandbox.ports import pick_ports
from kafka_steward.sandbox.readiness import admin

__all__ = ["Secured", "secured"]

PASSWORD = "open-sesame"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: The plain listener is the brokers' own, and the administrator's: who comes by it may do anything.
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: Resource and operation, as docs/permissions.md writes them.
Entry = tuple[str, str]


@dataclass
class Secured:
    """The cluster, and what a principal needs to connect to it."""

    sandbox: Sandbox
    addresses: Sequence[str]
    authority: Path

    def principal(self, *entries: Entry) -> str:
        """A new user who may do exactly this."""
        name = f"steward-{secrets.token_hex(4)}"
        with admin(self.sandbox.bootstrap) as client:
            created = client.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(name, "SCRAM-SHA-512", PASSWORD)]
            )
            assert created == {name: None}
            self.allow(name, *entries)
        return name

    def allow(self, name: str, *entries: Entry) -> None:
        """Give more rights."""
        with admin(self.sandbox.bootstrap) as client:
            assert client.create_acls([acl(name, entry) for entry in entries])["failed"] == []

    def forbid(self, name: str, *entries: Entry) -> None:
        """Take rights away."""
        with admin(self.sandbox.bootstrap) as client:
            client.delete_acls([acl(name, entry) for entry in entries])

    def config(self, name: str) -> dict[str, Any]:
        """How `name` connects: by SCRAM over TLS."""
        return {
            "bootstrap_servers": list(self.addresses),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": name,
            "sasl_plain_password": PASSWORD,
            "ssl_cafile": str(self.authority),
        }


def acl(name: str, entry: Entry) -> ACL:
    resource, operation = entry
    kind, _, named = resource.partition(" ")
    pattern = ResourcePattern(ResourceType[kind.upper()], "kafka-cluster" if kind == "Cluster" else named)
    return ACL(f"User:{name}", "*", ACLOperation[_in_kafka(operation)], ACLPermissionType.ALLOW, pattern)


def _in_kafka(operation: str) -> str:
    """`DescribeConfigs` as DESCRIBE_CONFIGS."""
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in operation).lstrip("_")


class SecuredKRaft(KRaft):
    """Brokers with a second listener."""

    ports: Mapping[int, int] = MappingProxyType({})
    keystore = Path()

    def prepare_broker(self, place: BrokerPlace) -> Path:
        """Write a broker's files; what is written last in a properties file wins."""
        config = super().prepare_broker(place)
        listeners = f"PLAINTEXT://{place.address},SECURED://127.0.0.1:{self.ports[place.id]}"
        more = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": f"{LOGIN} required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
        }
        config.write_text(config.read_text() + "".join(f"{name}={value}\n" for name, value in more.items()))
        return config


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Four brokers that know no one but those whom a test makes known."""
    folder = tmp_path_factory.mktemp("secured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODES, "kraft", SecuredKRaft)
        ports = dict(enumerate(pick_ports(4), start=1))
        authority, keystore = certified(folder)
        patch.setattr(SecuredKRaft, "ports", ports)
        patch.setattr(SecuredKRaft, "keystore", keystore)
        layout = Layout.of(folder / "cluster", brokers=4, racks=3, session_timeout_ms=3000, overrides=AUTHORIZED)
        (folder / "cluster").mkdir()
        with Sandbox("kraft", layout, temporary=False) as sandbox:
            sandbox.start()
            yield Secured(sandbox, [f"127.0.0.1:{port}" for port in ports.values()], authority)


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority; its file, and one with the key before it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1)).add_extension(address, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    text = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    authority, keystore = folder / "authority.pem", folder / "keystore.pem"
    authority.write_bytes(text)
    keystore.write_bytes(secret + text)
    return authority, keystore
