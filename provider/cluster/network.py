"""What we use of kafka-python's network layer, `kafka.net`, which is no interface: a release may change all of it.

No other module imports it, so that a change of it is a change of this file; tests/cluster/test_network.py holds what we
rely on. The rest of kafka-python that we use is its protocol, its errors and `KafkaAdminClient`.

kafka-python retries a refused authentication like any other failed connection, until its bootstrap time-out, and then
reports the time-out. If the refusal and the end of the connection arrive together, as they usually do, it loses the
refusal. When it gives up, it leaves its I/O thread running. This module corrects these three faults. It passes a client
of its own by the public parameter `kafka_client`. The connection manager of that client reads all data that has
arrived, and records why a connection ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import kafka.errors
from kafka import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider as AbstractTokenProvider  # noqa: PLC0414 - others take it from here
from kafka.net.selector import NetworkSelector

#: A factory of requests: each attempt needs a new one, since brokers may support different versions.
Request = Callable[[], Any]
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
#: The divisor of the bootstrap time-out for one server: a stalled server must not use up the time of the others.
_SERVER_SHARE = 3
#: Milliseconds that we wait after kafka-python's own time-out. Its timer closes a stalled connection, and ours covers a
#: connection that was never made.
_GRACE_MS = 250
#: Controllers answer clients since Kafka 3.7.
_CONTROLLER_VERSION = (4, 0)


class CertificateRefused(kafka.errors.SaslAuthenticationFailedError):  # type: ignore[misc]  # kafka-python has no types
    """A certificate was not accepted. kafka-python treats it as a refused authentication, and so does not retry it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker at its advertised address."""

    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """The address as host:port."""
        return f"{self.host}:{self.port}"


class Network:
    """The connections of one client, and the thread that serves them. `connect` opens them, `close` ends both."""

    def __init__(self) -> None:
        self._admin: Any = None
        self._clients: list[Any] = []
        self._managers: list[_ConnectionManager] = []

    def connect(self, config: Mapping[str, Any]) -> None:
        """Connect to a bootstrap server. Raises kafka-python's errors; `failures` has what each server failed with."""
        self._admin = KafkaAdminClient(**config, kafka_client=self._create_client)

    def close(self) -> None:
        """Close the connections and stop the thread."""
        if self._admin is not None:
            self._admin.close()
        else:
            # The bootstrap failed: kafka-python leaves the thread of each client running.
            for client in self._clients:
                client.close()

    def send(self, request: Any, node: int, timeout_ms: int) -> Any:
        """Send a request to one broker and return its response. Raises kafka-python's errors."""
        return self._manager.run(_send_one, self._manager, request, node, timeout_ms)

    def send_to_each(self, asked: Mapping[int, Request], timeout_ms: int) -> dict[int, Any]:
        """Send requests to brokers at once; return the responses, or kafka-python's errors, by broker."""
        return dict(self._manager.run(_send_all, self._manager, asked, timeout_ms))

    def refresh_nodes(self, timeout_ms: int) -> None:
        """Refresh the table of brokers; if that fails, unknown brokers stay unknown."""
        self._manager.run(_refresh_nodes, self._manager, timeout_ms)

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the metadata; None while the cluster has none."""
        value = self._manager.cluster.cluster_id
        return None if value is None else str(value)

    @property
    def nodes(self) -> list[Node]:
        """The brokers of the metadata, in the order of their ids."""
        return sorted(
            (Node(broker.node_id, broker.host, broker.port) for broker in self._manager.cluster.brokers()),
            key=lambda node: node.node_id,
        )

    @property
    def bootstrap_addresses(self) -> frozenset[str]:
        """The addresses of the bootstrap servers, as host:port."""
        return frozenset(f"{broker.host}:{broker.port}" for broker in self._manager.cluster.bootstrap_brokers())

    def least_loaded_node(self) -> int | None:
        """Return the broker with the fewest requests in flight, of those that can be reached; None without one."""
        best = self._manager.least_loaded_node()
        return None if best is None else int(best)

    def api_versions(self, broker: int | None = None) -> Mapping[int, tuple[int, int]] | None:
        """Return the lowest and highest version of each request, by its API key.

        They are those of the broker that responded first, or of a connected `broker`: None while it is not connected.
        """
        connection = self._manager if broker is None else self._connection(broker)
        versions = None if connection is None else connection.broker_version_data
        return None if versions is None else versions.api_versions

    def kafka_version(self, broker: int | None = None) -> tuple[int, ...]:
        """Return the newest version of Kafka all of whose requests a broker supports.

        It is that of the broker that responded first, or of `broker` if that is connected.
        """
        connection = None if broker is None else self._connection(broker)
        return tuple((connection or self._manager).broker_version)

    @property
    def failures(self) -> dict[Any, Exception]:
        """The errors that ended connections, by broker id or bootstrap server, in the order of the first of each."""
        return {node: failure for manager in self._managers for node, failure in manager.failures.items()}

    @property
    def reached(self) -> bool:
        """Whether a broker was reached at its advertised address."""
        return self._manager.reached

    @property
    def answering_server(self) -> str:
        """The bootstrap server that named the brokers."""
        return self._manager.answering_server

    @property
    def _manager(self) -> _ConnectionManager:
        return self._managers[0]

    def _connection(self, broker: int) -> Any:
        return self._manager._conns.get(broker)  # noqa: SLF001 - a public look would connect where it is gone

    def _create_client(self, **options: Any) -> Any:
        net = NetworkSelector(**options)
        self._managers.append(_ConnectionManager(net, **options))
        self._clients.append(KafkaNetClient(net=net, manager=self._managers[-1], **options))
        return self._clients[-1]


def ask_controllers(config: Mapping[str, Any], servers: str, request: Request, timeout_ms: int) -> Iterator[Any]:
    """Yield the responses of the KRaft controllers that answer a request, one after the other (KIP-919).

    Only the active controller carries out a change. A controller answers no request for metadata, with which
    kafka-python begins: it is asked in the versions of Kafka 4.0, without a look for those that it has. Raises
    kafka-python's error of the first one if none answers.
    """
    failures: list[Exception] = []
    answered = False
    for server in servers.split(","):
        try:
            answer = _ask_controller({**config, "bootstrap_servers": [server]}, request(), timeout_ms)
        except kafka.errors.KafkaError as error:
            failures.append(error)
        else:
            answered = True
            yield answer
    if failures and not answered:
        raise failures[0]


def _ask_controller(config: Mapping[str, Any], request: Any, timeout_ms: int) -> Any:
    # A client of its own: after a refused connection, kafka-python may fail the next request to another server too.
    options = {**config, "api_version": _CONTROLLER_VERSION}
    net = NetworkSelector(**options)
    manager = _ConnectionManager(net, **options)
    try:
        controller = next(iter(manager.cluster.bootstrap_brokers()))
        return net.run(_send_one, manager, request, controller.node_id, timeout_ms)
    finally:
        manager.close()
        net.close()


async def _send_one(manager: Any, request: Any, node: int, timeout_ms: int) -> Any:
    sent = manager.send(request, node_id=node, request_timeout_ms=timeout_ms)
    return await manager.wait_for(sent, timeout_ms + _GRACE_MS)


async def _send_all(manager: Any, asked: Mapping[int, Request], timeout_ms: int) -> dict[int, Any]:
    deadline = time.monotonic() + (timeout_ms + _GRACE_MS) / 1000
    pending = {broker: _start_sending(manager, request, broker, timeout_ms) for broker, request in asked.items()}
    return {broker: await _await_response(manager, sent, deadline) for broker, sent in pending.items()}


async def _refresh_nodes(manager: Any, timeout_ms: int) -> None:
    try:
        await manager.wait_for(manager.call_soon(manager.cluster.refresh_metadata), timeout_ms)
    except kafka.errors.KafkaError:
        return


def _start_sending(manager: Any, request: Request, broker: int, timeout_ms: int) -> Any:
    try:
        return manager.send(request(), node_id=broker, request_timeout_ms=timeout_ms)
    except kafka.errors.KafkaError as error:
        return error


async def _await_response(manager: Any, sent: Any, deadline: float) -> Any:
    if isinstance(sent, kafka.errors.KafkaError):
        return sent
    try:
        return await manager.wait_for(sent, max(1, (deadline - time.monotonic()) * 1000))
    except kafka.errors.KafkaError as error:
        return error


class _ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]
    """kafka-python's connection manager, extended to stop the bootstrap when a server refuses the authentication."""

    def __init__(self, net: Any, **config: Any) -> None:
        self.failures: dict[Any, Exception] = {}
        #: The address of the last bootstrap server that was asked, and whether a broker was reached at its own address.
        self.answering_server, self.reached = "", False
        self._longest_ms = config["bootstrap_timeout_ms"] / _SERVER_SHARE
        super().__init__(net, **config)

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
        failure = self.failures.get(node_id)
        # kafka-python would try again until its time-out, and report that.
        if not self.bootstrapped and isinstance(failure, REFUSED):
            raise failure
        if not self.bootstrapped and failure is not None and _CERTIFICATE.search(str(failure)):
            raise CertificateRefused(str(failure.args[0] if failure.args else failure))
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
            # Why an earlier connection ended explains nothing of a broker that is reached now.
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
