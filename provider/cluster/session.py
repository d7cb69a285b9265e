"""One live kafka-python client that reports failed authentication immediately and stops all its threads on close.

kafka-python retries a refused authentication like any other failed connection, until its bootstrap time-out, and then
reports the time-out. If the refusal and the end of the connection arrive together, as they usually do, it loses the
refusal. When it gives up, it leaves its I/O thread running. This module corrects these three faults. It passes a client
of its own by the public parameter `kafka_client`. The connection manager of that client reads all data that has
arrived, and records why a connection ended.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import kafka.errors
from kafka import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from kafka_steward.assignment import name_some
from kafka_steward.cluster.oauth import TokenProvider
from kafka_steward.errors import AuthenticationFailed, ClusterError, ClusterUnreachable, SettingError

#: The errors of a responding broker that does not accept the credentials, or the mechanism.
REFUSED = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)
#: TLS errors, on either side, for a certificate that is not accepted: a retry cannot succeed.
_CERTIFICATE = re.compile(
    "CERTIFICATE_VERIFY_FAILED|CERTIFICATE_REQUIRED"
    "|ALERT_(BAD_CERTIFICATE|CERTIFICATE_EXPIRED|CERTIFICATE_REVOKED|CERTIFICATE_UNKNOWN|UNKNOWN_CA)"
)
#: Loggers that write passwords at DEBUG: the whole configuration, each request, each byte sent.
_SECRET_LOGGERS = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")
#: API keys whose support identifies the kind of a broker.
_DESCRIBE_QUORUM, _DESCRIBE_CLUSTER = 55, 60
#: The divisor of the bootstrap time-out for one server: a stalled server must not use up the time of the others.
_SERVER_SHARE = 3
#: kafka-python's words for a name that is not resolved, and a part of its words for a refused connection.
_UNRESOLVED, _REFUSED_CONNECTION = "DNS Resolution failure", "ECONNREFUSED"
#: Number of addresses that a message names; it only counts the rest.
_NAMED = 3
#: The first version that applies a rate of replication that is set for all brokers (KAFKA-10190).
_APPLIES_DEFAULT_RATES = (3, 9)


class Session:
    """A connected kafka-python client. Its I/O thread does not survive a fork: see `usable`."""

    def __init__(self, admin: Any, manager: Any) -> None:
        self.manager = manager
        self._admin = admin
        self._pid = os.getpid()

    @classmethod
    def open(cls, config: Mapping[str, Any]) -> Session:
        """Connect. Raises AuthenticationFailed, ClusterUnreachable or SettingError."""
        quiet_client_logs()
        _check_credentials(config)
        clients: list[Any] = []
        managers: list[_ConnectionManager] = []

        def create_client(**options: Any) -> Any:
            net = NetworkSelector(**options)
            managers.append(_ConnectionManager(net, **options))
            clients.append(KafkaNetClient(net=net, manager=managers[-1], **options))
            return clients[-1]

        try:
            admin = KafkaAdminClient(**config, kafka_client=create_client)
        except BaseException as error:
            # The errors that ended connections, one per server, in the order in which the servers first failed.
            failures = [failure for manager in managers for failure in manager.failures.values()]
            for client in clients:
                client.close()
            if isinstance(error, kafka.errors.KafkaError):
                raise _translate_error(error, failures, config) from error
            raise
        return cls(admin, managers[0])

    @property
    def usable(self) -> bool:
        """True in the process that opened the session: a forked child has no I/O thread and would wait forever."""
        return self._pid == os.getpid()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id from the connection's metadata; None while the cluster has no id yet."""
        value = self.manager.cluster.cluster_id
        return None if value is None else str(value)

    @property
    def zookeeper_mode(self) -> bool:
        """True if ZooKeeper keeps the cluster's metadata: the broker that responded first lacks DescribeQuorum."""
        return _DESCRIBE_QUORUM not in self.manager.broker_version_data.api_versions

    @property
    def describes_cluster(self) -> bool:
        """True if the broker that responded first supports DescribeCluster, as since Kafka 2.8."""
        return _DESCRIBE_CLUSTER in self.manager.broker_version_data.api_versions

    @property
    def kafka_version(self) -> str:
        """The newest Kafka version, such as "4.3", all of whose requests the broker that responded first supports."""
        return ".".join(map(str, self.manager.broker_version_data.broker_version[:2]))

    def applies_default_rates(self, broker: int) -> bool:
        """Return whether a broker that has just responded applies a throttle rate for all brokers, as since Kafka 3.9.

        During an upgrade each broker has a version of its own.
        """
        connection = self.manager._conns.get(broker)  # noqa: SLF001 - a public look would connect where it is gone
        return bool((connection or self.manager).broker_version >= _APPLIES_DEFAULT_RATES)

    def supports(self, broker: int, api_key: int, version: int) -> bool:
        """Return whether a connected broker knows this version of a request; False while it is not connected."""
        connection = self.manager._conns.get(broker)  # noqa: SLF001 - a public look would connect where it is gone
        known = None if connection is None else connection.broker_version_data
        return known is not None and known.api_versions.get(api_key, (0, 0))[1] >= version

    def describe_unreachable(self, broker: int | None = None) -> str:
        """Return a clause that says why no broker can be reached at its advertised address; empty if that is no cause.

        Advertised addresses are no cause if a broker has been reached in this session, or if the brokers are advertised
        at the bootstrap servers: then they do not run. For one `broker`, only a name that cannot be resolved is a
        cause.
        """
        manager = self.manager
        nodes = [node for node in manager.cluster.brokers() if broker in (None, node.node_id)]
        named = [f"{node.host}:{node.port}" for node in sorted(nodes, key=lambda node: node.node_id)]
        given = {f"{node.host}:{node.port}" for node in manager.cluster.bootstrap_brokers()}
        errors = [manager.failures[node.node_id] for node in nodes if node.node_id in manager.failures]
        failures = [str(error.args[0]) if error.args else type(error).__name__ for error in errors]
        stopped = manager.reached if broker is None else failures != [_UNRESOLVED]
        if not failures or stopped or not given.isdisjoint(named):
            return ""
        return describe_addresses(named, failures)

    @property
    def answering_server(self) -> str:
        """The bootstrap server that named the brokers."""
        return str(self.manager.answering_server)

    def close(self) -> None:
        """Close the connections and stop the thread. In a forked child do nothing: both belong to the parent."""
        if self.usable:
            self._admin.close()


def describe_addresses(addresses: Sequence[str], failures: Sequence[str]) -> str:
    """Return a clause that says at which `addresses` brokers cannot be reached, and why; `failures` are the errors."""
    if set(failures) == {_UNRESOLVED}:
        why = "which this machine cannot resolve"
    elif all(_REFUSED_CONNECTION in failure for failure in failures):
        why = "where nothing accepts a connection from this machine"
    else:
        why = f"which this machine cannot reach ({failures[0]})"
    return f"{name_some(addresses, _NAMED)}, {why} (advertised.listeners)"


class _CertificateRefused(kafka.errors.SaslAuthenticationFailedError):  # type: ignore[misc]
    """A certificate was not accepted. kafka-python treats it as a refused authentication, and so does not retry it."""


class _ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connection manager, extended to stop the bootstrap when a server refuses the authentication."""

    def __init__(self, net: Any, **config: Any) -> None:
        self.failures: dict[Any, Exception] = {}
        #: The address of the last bootstrap server that was asked, and whether a broker was reached at its own address.
        self.answering_server, self.reached = "", False
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
        connection.close_future.add_errback(partial(self._keep_failure, node_id))
        connection.init_future.add_callback(partial(self._on_connected, node_id))
        return connection

    def _on_connected(self, node_id: Any, _: Any) -> None:
        if self.cluster.is_bootstrap(node_id):
            node = self.cluster.broker_metadata(node_id)
            self.answering_server = f"{node.host}:{node.port}"
        else:
            self.reached = True
            self.failures.pop(node_id, None)

    def _keep_failure(self, node_id: Any, failure: Exception) -> None:
        # An attempt that begins as the time ends is not made at all: what the server answered before says more.
        if node_id not in self.failures or not isinstance(failure.__context__, kafka.errors.KafkaTimeoutError):
            self.failures[node_id] = failure

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        transport._sock_recv = partial(_defer_receive_error, transport._sock_recv)  # noqa: SLF001 - drops a server's last words
        return transport


def _defer_receive_error(receive: Callable[[], tuple[bytes, Exception | None]]) -> tuple[bytes, Exception | None]:
    """Return the received data, and the end of the connection only once no data is left.

    kafka-python drops data that arrives together with the end of the connection.
    """
    data, error = receive()
    return data, None if data else error


def authentication_error(error: Exception, servers: str) -> AuthenticationFailed:
    """Return the error for a refused authentication."""
    words = str(error.args[0]) if error.args else str(getattr(error, "description", None) or type(error).__name__)
    words = words.removeprefix("SaslAuthenticationFailedError: ").rstrip(".")
    return AuthenticationFailed(
        f"Authentication failed at {servers}: Kafka says {words!r}; check the user name, the password and "
        "the mechanism in the connection."
    )


def _check_credentials(config: Mapping[str, Any]) -> None:
    """Get the credentials once before connecting, so that a failure raises here.

    kafka-python gets them on its own thread, where a failure only fails its connection.
    """
    provider = config.get("sasl_oauth_token_provider")
    if isinstance(provider, TokenProvider):
        provider.fetch()
    if config.get("sasl_mechanism") == "AWS_MSK_IAM":
        _check_aws_credentials()


def _check_aws_credentials() -> None:
    from botocore.session import Session as AwsSession  # noqa: PLC0415 - needed for this mechanism only

    session = AwsSession()
    for what, value in (("credentials", session.get_credentials()), ("region", session.get_config_variable("region"))):
        if not value:
            raise SettingError(
                f"The mechanism AWS_MSK_IAM found no AWS {what} on this machine; configure them as for any AWS "
                "client, such as by the machine's role, or AWS_DEFAULT_REGION."
            )


def _translate_error(
    error: Exception, failures: list[Exception], config: Mapping[str, Any]
) -> ClusterError | SettingError:
    servers = ", ".join(config["bootstrap_servers"])
    if isinstance(error, _CertificateRefused):
        return AuthenticationFailed(
            f"A certificate was not accepted at {servers} ({error.args[0]}); check ssl_cafile, which must verify the "
            "brokers, and ssl_certfile, if they require a client certificate."
        )
    if isinstance(error, REFUSED):
        return authentication_error(error, servers)
    if isinstance(error, kafka.errors.KafkaConfigurationError):
        return SettingError(f"The Kafka connection cannot work: {error.args[0] if error.args else error}.")
    if isinstance(error, kafka.errors.IncompatibleBrokerVersion):
        return ClusterUnreachable(
            f"{servers} is not a supported Kafka broker ({error}); name brokers, not KRaft controllers."
        )
    why = f" ({failures[-1].args[0]})" if failures and failures[-1].args else ""
    seconds = config["bootstrap_timeout_ms"] / 1000
    return ClusterUnreachable(
        f"No Kafka server at {servers} answered within {seconds:g} s{why}; check that it runs, and the connection's "
        "bootstrap servers and security protocol."
    )


def quiet_client_logs() -> None:
    """Quiet kafka-python, which logs each failed attempt as an ERROR while a cluster is being healed.

    Relevant failures are raised as our own errors. A level that was configured for the logger `kafka` is kept, but the
    loggers that write passwords are raised to at least INFO.
    """
    if logging.getLogger("kafka").level == logging.NOTSET:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
    for name in _SECRET_LOGGERS:
        logger = logging.getLogger(name)
        if logger.getEffectiveLevel() < logging.INFO:
            logger.setLevel(logging.INFO)
