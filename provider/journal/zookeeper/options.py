"""Connection options of the ZooKeeper that contains a cluster's journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_steward.errors import SettingError
from kafka_steward.value_parsing import parse_boolean

_SWITCHES = ("use_ssl", "verify_certs", "check_hostname")

_FILES = ("ca", "certfile", "keyfile")

_TLS = (*_SWITCHES, *_FILES, "keyfile_password")


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """Options of a ZooKeeper connection.

    `hosts` is a connect string, `host:port,host:port/chroot`, the same that the brokers use. `digest` is
    `user:password`. `tls` holds kazoo's settings for TLS: `use_ssl`, `verify_certs`, `check_hostname` (all true by
    default), the files `ca`, `certfile` and `keyfile`, and `keyfile_password`. `timeout_s` is the longest wait for an
    answer, in seconds; requests survive a pause of the servers of a quarter of it. `kafkas` is True if Kafka keeps its
    metadata there, so that a ZooKeeper without a Kafka cluster is refused.

    Raises SettingError for an invalid setting, and for one that would have no effect.
    """

    hosts: str
    digest: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = 18.0  # as long as a broker waits by default for its own connection to ZooKeeper
    kafkas: bool = False

    @property
    def place(self) -> str:
        """The location, for messages."""
        return f"ZooKeeper at {self.hosts}"

    def __post_init__(self) -> None:
        if not self.servers:
            raise SettingError("The setting zookeeper is empty; it takes host:port,host:port/chroot.")
        if self.digest is not None and not all(self.digest.partition(":")):
            raise SettingError("ZooKeeper's digest credentials are not of the form user:password.")
        unknown = sorted(set(self.tls) - set(_TLS))
        if unknown:
            raise SettingError(f"ZooKeeper's TLS takes no setting {unknown[0]}; it takes {', '.join(_TLS)}.")
        self._check_tls()

    @property
    def servers(self) -> str:
        """The servers of `hosts`, without the chroot."""
        return self.hosts.partition("/")[0]

    @property
    def chroot(self) -> str:
        """The chroot, such as `/kafka`; empty for the root."""
        return self.hosts[len(self.servers) :].rstrip("/")

    def kazoo_tls(self) -> dict[str, Any]:
        """Return kazoo's keyword arguments for TLS. Raises SettingError when a file is not on this machine."""
        given = {name: value for name, value in self.tls.items() if value not in (None, "")}
        if not given or not self._is_enabled("use_ssl"):
            return {}
        for name in (name for name in _FILES if name in given):
            if not Path(given[name]).is_file():
                raise SettingError(
                    f"ZooKeeper's TLS setting {name} names {given[name]}, which is not a file on this machine."
                )
        # kazoo checks the host name only if `check_hostname` is set, and cannot do so without verifying certificates.
        switches = {"use_ssl": True, "verify_certs": self._is_enabled("verify_certs")}
        switches["check_hostname"] = switches["verify_certs"] and self._is_enabled("check_hostname")
        return {**given, **switches}

    def _check_tls(self) -> None:
        given = {name for name in self.tls if self.tls[name] not in (None, "")}
        switches = {name: self._is_enabled(name) for name in _SWITCHES}
        if not switches["use_ssl"] and given - {"use_ssl"}:
            raise SettingError(
                f"ZooKeeper's TLS settings hold {min(given - {'use_ssl'})} and disable use_ssl, so that nothing "
                "would be encrypted; enable it, or remove the others."
            )
        if "check_hostname" in given and switches["check_hostname"] and not switches["verify_certs"]:
            raise SettingError(
                "ZooKeeper's TLS settings ask for check_hostname and disable verify_certs, without which no host "
                "name can be checked; enable verify_certs, or disable check_hostname."
            )
        for name, needed in (("certfile", "keyfile"), ("keyfile", "certfile"), ("keyfile_password", "keyfile")):
            if name in given and needed not in given:
                raise SettingError(f"ZooKeeper's TLS setting {name} has no effect without {needed}; set that too.")

    def _is_enabled(self, name: str) -> bool:
        value = self.tls.get(name)
        try:
            return value in (None, "") or parse_boolean(value)
        except ValueError:
            raise SettingError(f"ZooKeeper's TLS setting {name} is {value!r}; it takes true or false.") from None
