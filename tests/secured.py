"""A cluster with ACLs, and four more listeners.

One takes SCRAM, or PLAIN, over TLS; one asks for a client's certificate. Two are open: the names of the brokers at one
resolve nowhere, and the other one is reached by a way of the test's own (`tests.relay`).
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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

from kafka_steward.cluster.client import KafkaCluster
from kafka_steward.errors import AuthenticationFailed
from kafka_steward.sandbox import Sandbox
from kafka_steward.sandbox.client import admin_client
from kafka_steward.sandbox.cluster_layout import BrokerLayout, ClusterLayout, pick_ports
from kafka_steward.sandbox.modes import MODES, KRaft, ZooKeeper
from tests.eventually import eventually

__all__ = [
    "IMPLIED",
    "PASSWORD",
    "Entry",
    "Secured",
    "ROWS",
    "SETS",
    "rights_of",
    "secured",
    "secured_cluster",
    "set_of",
]

PASSWORD = "open-sesame"
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
#: Who may come with PASSWORD by PLAIN.
PLAIN_USER = "plain-steward"
#: A domain in which nothing resolves (RFC 6761).
UNRESOLVED = "kafka-headless.invalid"
#: Each mode's own authorizer.
AUTHORIZERS = {
    "kraft": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "zookeeper": "kafka.security.authorizer.AclAuthorizer",
}
#: Resource and operation, as docs/permissions.md writes them.
Entry = tuple[str, str]
_PAGE = (Path(__file__).parents[1] / "docs/permissions.md").read_text()
#: The page's table: rights, and the sets that they are in.
ROWS = re.findall(r"^\| `(Cluster|Topic \*)` \| `(\w+)` \| ([a-z, ]+) \|", _PAGE, re.MULTILINE)
#: The page's list: workflows by the set that they need.
SETS = {
    name: tuple(re.findall(r"`([\w-]+)`", text))
    for name, text in re.findall(r"^- \*\*(\w+)\*\*: (.*(?:\n  .*)*)", _PAGE, re.MULTILINE)
}
#: Kafka takes the wider right for the narrower one.
IMPLIED: dict[Entry, Entry] = {
    ("Cluster", "Describe"): ("Cluster", "Alter"),
    ("Cluster", "DescribeConfigs"): ("Cluster", "AlterConfigs"),
    ("Topic *", "Describe"): ("Topic *", "Alter"),
    ("Topic *", "DescribeConfigs"): ("Topic *", "AlterConfigs"),
}


def set_of(workflow: str) -> str:
    """The set of rights that a workflow or an operator needs, by the page."""
    found: list[str] = [name for name, workflows in SETS.items() if workflow in workflows]
    assert len(found) == 1, f"{workflow} is in {found}"
    return found[0]


def rights_of(name: str) -> list[Entry]:
    """What docs/permissions.md lists for a set of rights, such as look or move."""
    found = [(resource, operation) for resource, operation, for_whom in ROWS if name in for_whom.split(", ")]
    assert found
    return found


@dataclass
class Secured:
    """The cluster, and what a principal needs to connect to it; at `mutual` it needs a certificate."""

    sandbox: Sandbox
    addresses: Sequence[str]
    mutual: Sequence[str]
    #: Where the brokers answer, and name themselves by names that resolve nowhere.
    unresolved: Sequence[str]
    #: Ports that the brokers name and do not listen at, and those at which they do.
    ways: Sequence[tuple[int, int]]
    authority: Authority

    def principal(self, *entries: Entry) -> str:
        """A new user who may do exactly this."""
        name = f"steward-{secrets.token_hex(4)}"
        self.allow(name, *entries)
        # Each broker hears of a new user in its own time, and a wrong password is told for good.
        eventually(partial(self._let_in, name), within=30, errors=(AuthenticationFailed,))
        return name

    def _let_in(self, name: str) -> None:
        # kafka-python asks any broker; of a ZooKeeper cluster only the controller does it, and no other one says so.
        with admin_client(self.sandbox.bootstrap) as client:
            client.alter_user_scram_credentials([UserScramCredentialUpsertion(name, "SCRAM-SHA-512", PASSWORD)])
        for address in self.addresses:
            KafkaCluster({**self.config(name), "bootstrap_servers": [address]}).close()

    def allow(self, name: str, *entries: Entry) -> None:
        """Give more rights."""
        if not entries:
            return
        with admin_client(self.sandbox.bootstrap) as client:
            assert client.create_acls([acl(name, entry) for entry in entries])["failed"] == []

    def forbid(self, name: str, *entries: Entry) -> None:
        """Take rights away."""
        with admin_client(self.sandbox.bootstrap) as client:
            client.delete_acls([acl(name, entry) for entry in entries])

    def config(self, name: str) -> dict[str, Any]:
        """How `name` connects: by SCRAM over TLS."""
        return {
            "bootstrap_servers": list(self.addresses),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": name,
            "sasl_plain_password": PASSWORD,
            "ssl_cafile": str(self.authority.certificate),
        }

    def config_with_certificate(self, name: str) -> dict[str, Any]:
        """How the holder of a certificate for `name` connects, as text; as a principal of Kafka, `CN=name`."""
        return {
            "bootstrap_servers": list(self.mutual),
            "security_protocol": "SSL",
            "ssl_ca_pem": self.authority.certificate.read_text(),
            "ssl_certificate_pem": self.authority.client(name).read_text(),
        }


def acl(name: str, entry: Entry) -> ACL:
    resource, operation = entry
    kind, _, named = resource.partition(" ")
    pattern = ResourcePattern(ResourceType[kind.upper()], "kafka-cluster" if kind == "Cluster" else named)
    return ACL(f"User:{name}", "*", ACLOperation[_in_kafka(operation)], ACLPermissionType.ALLOW, pattern)


def _in_kafka(operation: str) -> str:
    """`DescribeConfigs` as DESCRIBE_CONFIGS."""
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in operation).lstrip("_")


@dataclass(frozen=True)
class _Ports:
    """One broker's."""

    scram: int
    mutual: int
    unresolved: int
    way: int
    behind: int


class _Listeners:
    """Brokers with more listeners; mixed into how a mode's brokers are prepared."""

    ports: Mapping[int, _Ports] = MappingProxyType({})
    authority: Authority

    def prepare_broker(self, place: BrokerLayout) -> Path:
        """Write a broker's files; what is written last in a properties file wins."""
        config: Path = super().prepare_broker(place)  # type: ignore[misc]
        own = self.ports[place.id]
        open_ = {"PLAINTEXT": place.address}
        closed = {"SECURED": f"127.0.0.1:{own.scram}", "MUTUAL": f"127.0.0.1:{own.mutual}"}
        heard = {"UNRESOLVED": f"127.0.0.1:{own.unresolved}", "BEHIND": f"127.0.0.1:{own.behind}"}
        named = {"UNRESOLVED": f"kafka-{place.id}.{UNRESOLVED}:9092", "BEHIND": f"127.0.0.1:{own.way}"}
        protocols = dict.fromkeys((*open_, *heard, "CONTROLLER"), "PLAINTEXT")
        protocols |= {"SECURED": "SASL_SSL", "MUTUAL": "SSL"}
        more = {
            "listeners": _addresses("://", open_ | closed | heard),
            "advertised.listeners": _addresses("://", open_ | closed | named),
            "listener.security.protocol.map": _addresses(":", protocols),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": f"{LOGIN} required;",
            "listener.name.secured.plain.sasl.jaas.config": (f'{PLAIN_LOGIN} required user_{PLAIN_USER}="{PASSWORD}";'),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.authority.keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority.certificate,
        }
        config.write_text(config.read_text() + "".join(f"{name}={value}\n" for name, value in more.items()))
        return config


def _addresses(between: str, several: Mapping[str, str]) -> str:
    return ",".join(f"{name}{between}{value}" for name, value in several.items())


class _KRaft(_Listeners, KRaft):
    pass


class _ZooKeeper(_Listeners, ZooKeeper):
    pass


_KINDS: dict[str, type[KRaft | ZooKeeper]] = {"kraft": _KRaft, "zookeeper": _ZooKeeper}
#: `MODES` is changed for as long as a sandbox is being made.
_making = threading.Lock()


@contextmanager
def secured_cluster(mode: str, folder: Path, **properties: str) -> Iterator[Secured]:
    """Four brokers that know no one but those whom a test makes known; `properties` are theirs, with _ for each dot."""
    ports = {broker: _Ports(*pick_ports(5)) for broker in range(1, 5)}
    authority = Authority(folder)
    # The plain listener is the brokers' own, and the administrator's: who comes by it may do anything.
    rules = {"authorizer.class.name": AUTHORIZERS[mode], "super.users": "User:ANONYMOUS"}
    rules |= {name.replace("_", "."): value for name, value in properties.items()}
    (folder / "cluster").mkdir()
    kind = type(f"Secured{mode}", (_KINDS[mode],), {"ports": ports, "authority": authority})
    with _making, pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODES, mode, kind)
        session_timeout_ms = MODES[mode].session_timeout_ms
        layout = ClusterLayout.of(
            folder / "cluster", brokers=4, racks=3, session_timeout_ms=session_timeout_ms, overrides=rules
        )
        sandbox = Sandbox(mode, layout, temporary=False)
    with sandbox:
        sandbox.start()
        scram, mutual, unresolved = (
            [f"127.0.0.1:{port}" for port in several]
            for several in zip(*((each.scram, each.mutual, each.unresolved) for each in ports.values()), strict=True)
        )
        ways = [(each.way, each.behind) for each in ports.values()]
        yield Secured(sandbox, scram, mutual, unresolved, ways, authority)


@pytest.fixture(scope="module", params=[pytest.param(mode, marks=getattr(pytest.mark, mode)) for mode in AUTHORIZERS])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A cluster of each mode, for the tests of a module."""
    with secured_cluster(request.param, tmp_path_factory.mktemp("secured")) as found:
        yield found


class Authority:
    """Signs certificates: its own, which is the brokers' for 127.0.0.1 too, and clients'."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate, self.keystore = folder / "authority.pem", folder / "keystore.pem"
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        own = self._begun(_AUTHORITY, self._key.public_key())
        own = own.add_extension(address, critical=False).add_extension(constraints, critical=True)
        text = self._signed(own)
        self.certificate.write_bytes(text)
        self.keystore.write_bytes(_plain(self._key) + text)

    def client(self, name: str) -> Path:
        """A client's certificate and its key, in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        file = self._folder / f"{name}.pem"
        file.write_bytes(_plain(key) + self._signed(self._begun(name, key.public_key())))
        return file

    def _begun(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(_named(name)).issuer_name(_named(_AUTHORITY)).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        lives = datetime.timedelta(hours=1), datetime.timedelta(days=1)
        return builder.not_valid_before(now - lives[0]).not_valid_after(now + lives[1])

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


_AUTHORITY = "127.0.0.1"


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _plain(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(*encoding)
