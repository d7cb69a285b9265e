"""One live client of a cluster, with sentences for why it cannot connect."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import kafka.errors

from kafka_steward.assignment import name_some
from kafka_steward.cluster.network import REFUSED, CertificateRefused, Network
from kafka_steward.cluster.oauth import TokenProvider
from kafka_steward.errors import AuthenticationFailed, ClusterError, ClusterUnreachable, SettingError

#: Loggers that write passwords at DEBUG: the whole configuration, each request, each byte sent.
_SECRET_LOGGERS = ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser")
#: API keys whose support identifies the kind of a broker.
_DESCRIBE_QUORUM, _DESCRIBE_CLUSTER, _DESCRIBE_TOPIC_PARTITIONS = 55, 60, 75
#: kafka-python's words for a name that is not resolved, and a part of its words for a refused connection.
_UNRESOLVED, _REFUSED_CONNECTION = "DNS Resolution failure", "ECONNREFUSED"
#: Number of addresses that a message names; it only counts the rest.
_NAMED = 3
#: The first version that applies a rate of replication that is set for all brokers (KAFKA-10190).
_APPLIES_DEFAULT_RATES = (3, 9)


class Session:
    """A connected client. Its I/O thread does not survive a fork: see `usable`."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._pid = os.getpid()

    @classmethod
    def open(cls, config: Mapping[str, Any]) -> Session:
        """Connect. Raises AuthenticationFailed, ClusterUnreachable or SettingError."""
        quiet_client_logs()
        _check_credentials(config)
        network = Network()
        try:
            network.connect(config)
        except BaseException as error:
            failures = list(network.failures.values())
            network.close()
            if isinstance(error, kafka.errors.KafkaError):
                raise _translate_error(error, failures, config) from error
            raise
        return cls(network)

    @property
    def usable(self) -> bool:
        """True in the process that opened the session: a forked child has no I/O thread and would wait forever."""
        return self._pid == os.getpid()

    @property
    def cluster_id(self) -> str | None:
        """The cluster id from the connection's metadata; None while the cluster has no id yet."""
        return self.network.cluster_id

    @property
    def zookeeper_mode(self) -> bool:
        """True if ZooKeeper keeps the cluster's metadata: the broker that responded first lacks DescribeQuorum."""
        return _DESCRIBE_QUORUM not in (self.network.api_versions() or {})

    @property
    def describes_cluster(self) -> bool:
        """True if the broker that responded first supports DescribeCluster, as since Kafka 2.8."""
        return _DESCRIBE_CLUSTER in (self.network.api_versions() or {})

    @property
    def describes_partitions(self) -> bool:
        """True if the broker that responded first supports DescribeTopicPartitions, as with KRaft since Kafka 3.8."""
        return _DESCRIBE_TOPIC_PARTITIONS in (self.network.api_versions() or {})

    @property
    def kafka_version(self) -> str:
        """The newest Kafka version, such as "4.3", all of whose requests the broker that responded first supports."""
        return ".".join(map(str, self.network.kafka_version()[:2]))

    def applies_default_rates(self, broker: int) -> bool:
        """Return whether a broker that has just responded applies a throttle rate for all brokers, as since Kafka 3.9.

        During an upgrade each broker has a version of its own.
        """
        return self.network.kafka_version(broker) >= _APPLIES_DEFAULT_RATES

    def supports(self, broker: int, api_key: int, version: int) -> bool:
        """Return whether a connected broker knows this version of a request; False while it is not connected."""
        known = self.network.api_versions(broker)
        return known is not None and known.get(api_key, (0, 0))[1] >= version

    def describe_unreachable(self, broker: int | None = None) -> str:
        """Return a clause that says why no broker can be reached at its advertised address; empty if that is no cause.

        Advertised addresses are no cause if a broker has been reached in this session, or if the brokers are advertised
        at the bootstrap servers: then they do not run. For one `broker`, only a name that cannot be resolved is a
        cause.
        """
        nodes = [node for node in self.network.nodes if broker in (None, node.node_id)]
        named, failed = [node.address for node in nodes], self.network.failures
        errors = [failed[node.node_id] for node in nodes if node.node_id in failed]
        failures = [str(error.args[0]) if error.args else type(error).__name__ for error in errors]
        stopped = self.network.reached if broker is None else failures != [_UNRESOLVED]
        if not failures or stopped or not self.network.bootstrap_addresses.isdisjoint(named):
            return ""
        return describe_addresses(named, failures)

    @property
    def answering_server(self) -> str:
        """The bootstrap server that named the brokers."""
        return self.network.answering_server

    def close(self) -> None:
        """Close the connections and stop the thread. In a forked child do nothing: both belong to the parent."""
        if self.usable:
            self.network.close()


def describe_addresses(addresses: Sequence[str], failures: Sequence[str]) -> str:
    """Return a clause that says at which `addresses` brokers cannot be reached, and why; `failures` are the errors."""
    if set(failures) == {_UNRESOLVED}:
        why, advice = "which this machine cannot resolve", "let it resolve them, or have the brokers advertise others"
    elif all(_REFUSED_CONNECTION in failure for failure in failures):
        why, advice = "where nothing accepts a connection from this machine", "let it through, or correct them"
    else:
        why, advice = f"which this machine cannot reach ({failures[0]})", "let it through, or correct them"
    return f"{name_some(addresses, _NAMED)}, {why} (advertised.listeners): {advice}"


def authentication_error(error: Exception, servers: str) -> AuthenticationFailed:
    """Return the error for a refused authentication."""
    words = str(error.args[0]) if error.args else str(getattr(error, "description", None) or type(error).__name__)
    words = words.removeprefix("SaslAuthenticationFailedError: ").rstrip(".")
    # What a listener without SASL says to a client that begins with it.
    none = ", and whether the listener takes SASL at all (security protocol)" if "SASL state" in words else ""
    return AuthenticationFailed(
        f"Authentication failed at {servers}: Kafka says {words!r}; check the user name, the password and "
        f"the mechanism in the connection{none}."
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
    required = (
        ("credentials", session.get_credentials(), "the machine's role"),
        ("region", session.get_config_variable("region"), "AWS_DEFAULT_REGION"),
    )
    for what, value, such_as in required:
        if not value:
            raise SettingError(
                f"The mechanism AWS_MSK_IAM found no AWS {what} on this machine; configure what any AWS client takes, "
                f"such as {such_as}."
            )


def _translate_error(
    error: Exception, failures: list[Exception], config: Mapping[str, Any]
) -> ClusterError | SettingError:
    servers = ", ".join(config["bootstrap_servers"])
    if isinstance(error, CertificateRefused):
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
    words = str(failures[-1].args[0]) if failures and failures[-1].args else ""
    why = f" ({words})" if words else ""
    seconds, encrypted = config["bootstrap_timeout_ms"] / 1000, "SSL" in str(config.get("security_protocol"))
    return ClusterUnreachable(
        f"No Kafka server at {servers} answered within {seconds:g} s{why}; {_connection_advice(words, encrypted)}."
    )


def _connection_advice(words: str, encrypted: bool) -> str:
    """Return what to do about a connection that failed with these words of kafka-python."""
    if words == _UNRESOLVED:
        return "correct the name in the bootstrap servers, or let this machine resolve it"
    if encrypted and words.startswith("Handshake failed"):
        return (
            "what listens there does not accept TLS as Kafka does: set the security protocol to PLAINTEXT or "
            "SASL_PLAINTEXT, or name the port of a listener with TLS"
        )
    if not encrypted and re.match("socket disconnected|Invalid frame length|Request timed out|104 ", words):
        return (
            "what listens there does not answer as a Kafka broker without TLS does: set the security protocol to that "
            "of the listener (SASL_PLAINTEXT, SSL or SASL_SSL), or correct the port"
        )
    no_controller = "" if words else " as a broker, not as a controller of KRaft"
    return f"check that it runs{no_controller}, and the connection's bootstrap servers and security protocol"


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
