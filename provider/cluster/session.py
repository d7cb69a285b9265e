"""One live kafka-python client: opened so that a wrong password is known at once, and closed to the last thread.

kafka-python retries a refused authentication like any other failed connection, until its bootstrap time-out, and then
reports the time-out. Where the refusal and the end of the connection arrive together, which is usual, it loses the
refusal. And when it gives up, it leaves its I/O thread running. All three are mended here, through the `kafka_client`
parameter, which is public: a connection manager that reads to the end, and remembers why a connection ended.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import kafka.errors
from kafka import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from kafka_steward.cluster.oauth import TokenProvider
from kafka_steward.errors import AuthenticationFailed, ClusterError, ClusterUnreachable, SettingError

__all__ = ["Session", "authentication_failed"]

#: What a broker that answers says when it does not accept the credentials, or the way they are offered.
REFUSED = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)
#: What TLS says, on either side, when a certificate is not accepted: no waiting mends that.
_CERTIFICATE = re.compile(
    "CERTIFICATE_VERIFY_FAILED|CERTIFICATE_REQUIRED"
    "|ALERT_(BAD_CERTIFICATE|CERTIFICATE_EXPIRED|CERTIFICATE_REVOKED|CERTIFICATE_UNKNOWN|UNKNOWN_CA)"
)
#: These write passwords at DEBUG: the whole configuration, each request, each byte sent.
_TELLTALES = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")
#: A share of the bootstrap time-out: one server that hangs must not use up the time of those that would answer.
_SERVER_SHARE = 3


class Session:
    """A connected kafka-python client. Its I/O thread does not survive a fork: see `usable`."""

    def __init__(self, admin: Any, manager: Any) -> None:
        self.manager = manager
        self._admin = admin
        self._pid = os.getpid()

    @classmethod
    def open(cls, config: Mapping[str, Any]) -> Session:
        """Connect. Raises AuthenticationFailed, ClusterUnreachable or SettingError."""
        _keep_quiet()
        _try_credentials(config)
        made: list[Any] = []
        try:
            admin = KafkaAdminClient(**config, kafka_client=partial(_client, made.append))
        except BaseException as error:
            failures = [failure for client in made for failure in client.cluster_failures()]
            for client in made:
                client.close()
            if isinstance(error, kafka.errors.KafkaError):
                raise _sentence(error, failures, config) from error
            raise
        return cls(admin, made[0].manager)

    @property
    def usable(self) -> bool:
        """Whether this process opened it: after a fork, the child has no I/O thread and would wait forever."""
        return self._pid == os.getpid()

    @property
    def cluster_id(self) -> str | None:
        """The id that the cluster answered with while connecting; None while it is still being made."""
        value = self.manager.cluster.cluster_id
        return None if value is None else str(value)

    def supports(self, api_key: int) -> bool:
        """Whether the broker that answered first knows the request."""
        return api_key in self.manager.broker_version_data.api_versions

    def close(self) -> None:
        """End connections and thread. A forked child leaves them to its parent."""
        if self.usable:
            self._admin.close()


class _CertificateRefused(kafka.errors.SaslAuthenticationFailedError):  # type: ignore[misc]
    """A certificate was not accepted; a refused authentication to kafka-python, which would try again for long."""


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connection manager, which ends the bootstrap when a server refuses to authenticate us."""

    def __init__(self, net: Any, **config: Any) -> None:
        self.failures: dict[Any, Exception] = {}
        self._longest_ms = config["bootstrap_timeout_ms"] / _SERVER_SHARE
        super().__init__(net, **config)

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
        failure = self.failures.get(node_id)
        if not self.bootstrapped and isinstance(failure, REFUSED):
            raise failure
        if not self.bootstrapped and failure is not None and _CERTIFICATE.search(str(failure)):
            raise _CertificateRefused(str(failure.args[0] if failure.args else failure))
        longest_ms = self._longest_ms if timeout_ms is None else min(timeout_ms, self._longest_ms)
        connection = super().get_connection(node_id, timeout_ms=longest_ms, **options)
        connection.close_future.add_errback(partial(self.failures.__setitem__, node_id))
        return connection

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        transport._sock_recv = partial(_received, transport._sock_recv)  # noqa: SLF001 - drops a server's last words
        return transport


class _Client(KafkaNetClient):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's client around our manager."""

    def __init__(self, net: Any, manager: _Manager, **config: Any) -> None:
        super().__init__(net=net, manager=manager, **config)
        self.manager = manager

    def cluster_failures(self) -> list[Exception]:
        """Why connections ended, by server, latest last."""
        return list(self.manager.failures.values())


def _received(receive: Callable[[], tuple[bytes, Exception | None]]) -> tuple[bytes, Exception | None]:
    """What has arrived; that the connection has ended is said when nothing is left. kafka-python drops what is."""
    data, error = receive()
    return data, None if data else error


def _client(made: Callable[[_Client], None], **config: Any) -> _Client:
    net = NetworkSelector(**config)
    client = _Client(net, _Manager(net, **config), **config)
    made(client)
    return client


def authentication_failed(error: Exception, servers: str) -> AuthenticationFailed:
    """The sentence for a refused authentication."""
    words = str(error.args[0]) if error.args else str(getattr(error, "description", None) or type(error).__name__)
    words = words.removeprefix("SaslAuthenticationFailedError: ").rstrip(".")
    return AuthenticationFailed(
        f"Authentication failed at {servers}: Kafka says {words!r}; check the user name, the password and "
        "the mechanism in the connection."
    )


def _try_credentials(config: Mapping[str, Any]) -> None:
    """Ask for what kafka-python would ask for on its own thread, where a failure is one of its connection only."""
    provider = config.get("sasl_oauth_token_provider")
    if isinstance(provider, TokenProvider):
        provider.fetch()
    if config.get("sasl_mechanism") == "AWS_MSK_IAM":
        _try_aws()


def _try_aws() -> None:
    from botocore.session import Session as AwsSession  # noqa: PLC0415 - needed for this mechanism only

    session = AwsSession()
    for what, found in (("credentials", session.get_credentials()), ("region", session.get_config_variable("region"))):
        if not found:
            raise SettingError(
                f"The mechanism AWS_MSK_IAM finds no AWS {what} here; set them as for any AWS client, such as by the "
                "role of this machine, or AWS_DEFAULT_REGION."
            )


def _sentence(error: Exception, failures: list[Exception], config: Mapping[str, Any]) -> ClusterError | SettingError:
    servers = ", ".join(config["bootstrap_servers"])
    if isinstance(error, _CertificateRefused):
        return AuthenticationFailed(
            f"A certificate was not accepted at {servers} ({error.args[0]}); check ssl_cafile, which vouches for the "
            "brokers, and ssl_certfile, where they ask for ours."
        )
    if isinstance(error, REFUSED):
        return authentication_failed(error, servers)
    if isinstance(error, kafka.errors.KafkaConfigurationError):
        return SettingError(f"The Kafka connection cannot work: {error.args[0] if error.args else error}.")
    if isinstance(error, kafka.errors.IncompatibleBrokerVersion):
        return ClusterUnreachable(
            f"{servers} is no Kafka broker that this can work with ({error}); name brokers, not KRaft controllers."
        )
    why = f" ({failures[-1].args[0]})" if failures and failures[-1].args else ""
    seconds = config["bootstrap_timeout_ms"] / 1000
    return ClusterUnreachable(
        f"No Kafka server at {servers} answered within {seconds:g} s{why}; check that it runs, and the connection's "
        "bootstrap servers and security protocol."
    )


def _keep_quiet() -> None:
    """Silence kafka-python, whose every failed attempt is an ERROR in the log of a cluster that is being healed.

    What matters is raised as our errors. A level that somebody has chosen for `kafka` is left alone, but never so far
    down that passwords are logged.
    """
    if logging.getLogger("kafka").level == logging.NOTSET:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
    for name in _TELLTALES:
        logger = logging.getLogger(name)
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)
