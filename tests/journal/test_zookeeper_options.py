"""What a connection to ZooKeeper may be given: all of it is used, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_steward.errors import SettingError
from kafka_steward.journal.zookeeper.options import ZooKeeperOptions
from kafka_steward.journal.zookeeper.tree import ZkTree

HOSTS = "a:2181,b:2181"


def test_servers_and_chroot_are_told_apart() -> None:
    options = ZooKeeperOptions(f"{HOSTS}/kafka/one/")
    assert (options.servers, options.chroot, options.place) == (HOSTS, "/kafka/one", f"ZooKeeper at {HOSTS}/kafka/one/")
    assert ZooKeeperOptions(HOSTS).chroot == ""


@pytest.mark.parametrize("hosts", ["", "/kafka"])
def test_no_server_is_refused(hosts: str) -> None:
    with pytest.raises(SettingError, match="it takes host:port,host:port/chroot"):
        ZooKeeperOptions(hosts)


@pytest.mark.parametrize("digest", ["", "user", "user:", ":password"])
def test_a_digest_without_user_or_password_is_refused_and_not_shown(digest: str) -> None:
    with pytest.raises(SettingError, match="not of the form user:password"):
        ZooKeeperOptions(HOSTS, digest)
    options = ZooKeeperOptions(
        HOSTS, "user:s3cret", tls={"certfile": "c", "keyfile": "k", "keyfile_password": "s3cret"}
    )
    assert "s3cret" not in repr(options) + repr(ZkTree(options))


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"cafile": "/ca.pem"}, "takes no setting cafile; it takes use_ssl, verify_certs"),
        ({"use_ssl": "perhaps"}, "use_ssl is 'perhaps'; it takes true or false"),
        ({"use_ssl": False, "ca": "/ca.pem"}, "hold ca and disable use_ssl"),
        ({"use_ssl": False, "verify_certs": True}, "hold verify_certs and disable use_ssl"),
        ({"check_hostname": True, "verify_certs": False}, "ask for check_hostname and disable verify_certs"),
        ({"certfile": "/c.pem"}, "certfile has no effect without keyfile"),
        ({"keyfile": "/k.pem"}, "keyfile has no effect without certfile"),
        ({"keyfile_password": "s3cret"}, "keyfile_password has no effect without keyfile"),
        ({"certfile": "x", "keyfile_password": "s3cret"}, "has no effect without keyfile"),
    ],
)
def test_what_would_have_no_effect_is_refused(tls: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        ZooKeeperOptions(HOSTS, tls=tls)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("tls", [{}, {"use_ssl": False}, {"use_ssl": "false", "ca": ""}, {"ca": None}])
def test_without_tls_kazoo_is_told_nothing_of_it(tls: dict[str, Any]) -> None:
    assert ZooKeeperOptions(HOSTS, tls=tls).kazoo_tls() == {}


@pytest.mark.parametrize(
    ("given", "verified", "named"),
    [
        ({"use_ssl": True}, True, True),
        ({"use_ssl": True, "verify_certs": False}, False, False),
        ({"verify_certs": True, "check_hostname": "no"}, True, False),
        ({"check_hostname": "off"}, True, False),
        ({"verify_certs": False}, False, False),
    ],
)
def test_certificates_and_names_are_verified_unless_that_is_switched_off(
    given: dict[str, Any], verified: bool, named: bool
) -> None:
    found = ZooKeeperOptions(HOSTS, tls=given).kazoo_tls()
    assert found == {"use_ssl": True, "verify_certs": verified, "check_hostname": named}


def test_a_file_that_is_not_here_is_named_when_it_is_used(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    options = ZooKeeperOptions(HOSTS, tls={"ca": str(ca)})
    with pytest.raises(SettingError, match=r"setting ca names .*, which is not a file on this machine"):
        ZkTree(options).get("/a")
    ca.touch()
    assert options.kazoo_tls() == {"ca": str(ca), "use_ssl": True, "verify_certs": True, "check_hostname": True}
