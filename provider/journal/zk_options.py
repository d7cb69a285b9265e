"""How to reach the ZooKeeper that a cluster's journal is kept in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_steward.errors import SettingError

__all__ = ["ZooKeeperOptions"]

_TLS = ("use_ssl", "verify_certs", "check_hostname", "ca", "certfile", "keyfile", "keyfile_password")


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """`hosts` is a connect string: `host:port,host:port/chroot`, the one that the brokers have.

    `digest` is `user:password`; `tls` holds kazoo's settings for it. Raises SettingError for what cannot be used.
    """

    hosts: str
    digest: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = 10.0

    @property
    def place(self) -> str:
        """Where that is, for people."""
        return f"ZooKeeper at {self.hosts}"

    def __post_init__(self) -> None:
        if not self.hosts.partition("/")[0]:
            raise SettingError("The setting zookeeper is empty; it takes host:port,host:port/chroot.")
        if self.digest is not None and not all(self.digest.partition(":")):
            raise SettingError("ZooKeeper's digest credentials are not of the form user:password.")
        unknown = sorted(set(self.tls) - set(_TLS))
        if unknown:
            raise SettingError(f"ZooKeeper's TLS takes no setting {unknown[0]}; it takes {', '.join(_TLS)}.")
