"""Send requests to any broker, to the controller, or to each broker separately, with retries and failover.

kafka-python by itself is not enough while brokers fail. It caches the controller and keeps sending requests to it after
it failed. It lets one stalled broker use up a call's time. It does not know brokers that joined after its last metadata
refresh. Here each attempt has its own time-out, another broker is tried when one fails, and the client is re-created
when its broker table is outdated.

A request that was sent and not answered may have been executed. A change is retried when the connection failed, because
it is idempotent (the same targets, the same entries), but never after a time-out. A creation is not retried: the second
attempt would be refused because of what the first one created. It is sent once, and the caller checks the result.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import kafka.errors

from kafka_steward.cluster import requests
from kafka_steward.cluster.connection import LOG_DIRS_TIMEOUT
from kafka_steward.cluster.network import REFUSED, Request, ask_controllers
from kafka_steward.cluster.session import Session, authentication_error
from kafka_steward.errors import (
    BrokerUnreachable,
    ClusterError,
    ClusterUnreachable,
    KafkaRefused,
    KafkaTimeout,
    WrongCluster,
)

_TIMEOUTS = (kafka.errors.KafkaTimeoutError, kafka.errors.RequestTimedOutError)
_RETRIABLE = (kafka.errors.RetriableError, kafka.errors.UnknownBrokerIdError)

#: The maximum number of items per request: a ZooKeeper-mode controller needs about 15 ms for each partition of a
#: request, and the request has one time-out.
MAX_BATCH = 50
#: The number of attempts at a read, on different brokers, within the time of one request.
_READ_ATTEMPTS = 3
_PAUSE_S = 0.2
#: The setting of the time-out of all requests but DescribeLogDirs.
_TIMEOUT = "request_timeout_ms"
#: The minimum time of an attempt, even of the last one.
_LEAST_MS = 1000

Item = TypeVar("Item")


def _is_unknown_broker(answer: Any) -> bool:
    # The broker is missing in kafka-python's table of brokers, which may be outdated.
    return isinstance(answer, kafka.errors.UnknownBrokerIdError)


def _error_text(error: Exception) -> str:
    """Return the message of an error, without its class; the class name if it has no message."""
    if _is_unknown_broker(error):
        return "the cluster does not list it"
    return str(error.args[0]) if error.args else type(error).__name__


def request_name(request: Any) -> str:
    """Return Kafka's name of the request, such as "DescribeLogDirs"."""
    return type(request).__name__.removesuffix("Request")


class KafkaTransport:
    """The transport to one cluster, identified by its id: a response of another cluster raises WrongCluster."""

    def __init__(self, config: Mapping[str, Any], expected_cluster_id: str | None) -> None:
        self.servers = ", ".join(config["bootstrap_servers"])
        self.timeout_ms = int(config["request_timeout_ms"])
        self.log_dirs_timeout_ms = int(config[LOG_DIRS_TIMEOUT])
        self.cluster_id = expected_cluster_id or ""
        self._config = {name: value for name, value in config.items() if name != LOG_DIRS_TIMEOUT}
        # Reentrant, because `close` drops the session under it.
        self._lock = threading.RLock()
        self._controller: int | None = None
        self._session: Session | None = None
        self._closed = False
        self.session()

    def session(self) -> Session:
        """Return the live client; create it if there is none, or if this process is a fork of its creator."""
        with self._lock:
            if self._closed:
                raise ClusterUnreachable(f"The connection to {self.servers} was closed; open a new one.")
            if self._session is None or not self._session.usable:
                opened = Session.open(self._config)
                try:
                    self._verify_cluster_id(opened.cluster_id)
                except ClusterError:
                    opened.close()
                    raise
                self._session = opened
            return self._session

    @property
    def server_timeout_ms(self) -> int:
        """The time-out that is sent to Kafka: less than our own, so that Kafka's time-out response arrives."""
        return self.timeout_ms * 9 // 10

    def close(self) -> None:
        """Close the client; it cannot be opened again."""
        with self._lock:
            self._drop_session()
            self._closed = True

    def metadata(self, topics: Collection[str] | None) -> Any:
        """Return a Metadata response of the expected cluster; None requests all topics.

        Raises KafkaRefused, and WrongCluster if another cluster responds.
        """
        response = self.send_to_any(lambda: requests.metadata_request(topics))
        if response.error_code:
            # Without this check, a refused request would look like a cluster without topics.
            raise requests.refusal_error(int(response.error_code), None, "describing the cluster's topics")
        return response

    def send_to_any(self, request: Request) -> Any:
        """Return the response of any broker to a read request."""
        return self._send_with_failover(
            request, self._least_loaded_broker, self.timeout_ms // _READ_ATTEMPTS, change=False
        )

    def send_to_controller(self, request: Request, *, change: bool, once: bool = False) -> Any:
        """Return the controller's response; a request with `once` is not retried if it may have been received.

        Raises KafkaTimeout: a change may have been executed all the same.
        """
        # A change gets the whole time: after a time-out it is not sent again.
        attempt_ms = self.timeout_ms if change else self.timeout_ms // _READ_ATTEMPTS
        if once:
            self._controller = None  # a cached controller that has failed since would use up the only attempt
        return self._send_with_failover(request, self._find_controller, attempt_ms, change=change, once=once)

    def controller_supports(self, api_key: int, version: int) -> bool:
        """Return whether the controller knows this version of a request; each connection has versions of its own.

        False while there is no connection to it: kafka-python then sends what the bootstrap server knows.
        """
        return self.session().supports(self._find_controller(set()), api_key, version)

    def send_to_controllers(self, servers: str, request: Request | None) -> Any:
        """Return the response of the active one of the KRaft controllers `servers`, to a change (KIP-919).

        Without a request only their cluster is compared. Raises WrongCluster, before the change, if they are of another
        cluster, and ClusterUnreachable.
        """
        config = {name: value for name, value in self._config.items() if name != "bootstrap_servers"}
        describe = requests.describe_controllers_request
        try:
            for described in ask_controllers(config, servers, describe, self.timeout_ms):
                self._verify_cluster_id(described.cluster_id)
            if request is None:
                return None
            # Only the active controller carries the change out: the others answer NOT_CONTROLLER and change nothing.
            for answer in ask_controllers(config, servers, request, self.timeout_ms):
                if all(result.error_code != requests.NOT_CONTROLLER for result in answer.responses):
                    return answer
        except kafka.errors.KafkaError as error:
            raise ClusterUnreachable(
                f"No KRaft controller at {servers} (controllers) answered ({_error_text(error)}); check that they run, "
                "and that the brokers' security settings fit them."
            ) from error
        raise ClusterUnreachable(f"None of the controllers at {servers} is the active one; name all of them.")

    def send_to_each(
        self, asked: Mapping[int, Request], *, timeout_ms: int | None = None, setting: str = _TIMEOUT
    ) -> dict[int, Any]:
        """Return the response of each broker, requested concurrently, within `timeout_ms`, which `setting` gives.

        The result is a BrokerUnreachable or KafkaTimeout for a broker that does not respond.
        """
        wait_ms = timeout_ms or self.timeout_ms
        session = self.session()
        answers = session.network.send_to_each(asked, wait_ms)
        unknown = {broker: asked[broker] for broker, answer in answers.items() if _is_unknown_broker(answer)}
        if unknown:
            # These brokers may have joined since kafka-python's last metadata refresh.
            session.network.refresh_nodes(wait_ms)
            answers |= session.network.send_to_each(unknown, wait_ms)
        # A time that a caller has chosen is no setting that a person could raise.
        where = f" ({setting})" if timeout_ms is None or setting != _TIMEOUT else ""
        waited = f"within {wait_ms / 1000:g} s{where}"
        return {
            broker: self._response_or_error(session, broker, answer, asked[broker], waited)
            for broker, answer in answers.items()
        }

    def send_to_responding(self, asked: Mapping[int, Request], *, timeout_ms: int | None = None) -> dict[int, Any]:
        """Return the responses of `send_to_each`; leave out brokers that do not respond."""
        answers = self.send_to_each(asked, timeout_ms=timeout_ms)
        return {broker: answer for broker, answer in answers.items() if not isinstance(answer, ClusterError)}

    def _verify_cluster_id(self, cluster_id: str | None) -> None:
        """Compare a response's cluster id with the known one, or record it if none is known yet.

        Raises WrongCluster if they differ, and ClusterUnreachable if the response contains no id.
        """
        if not cluster_id:
            raise ClusterUnreachable(f"The cluster at {self.servers} has no id yet; retry when it has started.")
        self.cluster_id = self.cluster_id or str(cluster_id)
        if cluster_id != self.cluster_id:
            raise WrongCluster(
                f"{self.servers} answers as cluster {cluster_id}, but {self.cluster_id} was expected; check the "
                "connection's bootstrap servers."
            )

    def _send_with_failover(
        self,
        request: Request,
        choose: Callable[[set[int]], int],
        attempt_ms: int,
        *,
        change: bool,
        once: bool = False,
    ) -> Any:
        """Send the request to the broker that `choose` returns, then to others, until one responds or time runs out."""
        deadline = time.monotonic() + self.timeout_ms / 1000
        tried: set[int] = set()
        sent = False
        name = request_name(request())
        while True:
            try:
                node = choose(tried)
                tried.add(node)
                left_ms = int((deadline - time.monotonic()) * 1000)
                return self._send_to_broker(request(), node, max(_LEAST_MS, min(attempt_ms, left_ms)))
            except kafka.errors.KafkaError as error:
                # After these errors the broker may have received the request, and may have executed it.
                sent = sent or isinstance(error, (kafka.errors.KafkaConnectionError, *_TIMEOUTS))
                unsure = isinstance(error, _TIMEOUTS) or once
                last = (change and sent and unsure) or time.monotonic() >= deadline
                self._controller = None
                if _is_unknown_broker(error):
                    self._drop_session()
                if last or not isinstance(error, _RETRIABLE):
                    self._raise_translated(error, name, change=change and sent)
            except ClusterUnreachable as error:
                # The whole cluster became unreachable between two attempts.
                if change and sent:
                    self._raise_translated(error, name, change=True)
                raise
            time.sleep(_PAUSE_S)

    def _send_to_broker(self, request: Any, node: int, attempt_ms: int) -> Any:
        response = self.session().network.send(request, node, attempt_ms)
        # These two errors are raised as kafka-python would, so that the caller retries them like its own.
        code = getattr(response, "error_code", requests.NONE)
        if code == requests.NOT_CONTROLLER:
            raise kafka.errors.NotControllerError
        if code == requests.TIMED_OUT:
            raise kafka.errors.RequestTimedOutError("the controller did not answer the broker in time")
        return self._verify_response(response)

    def _verify_response(self, response: Any) -> Any:
        """Return a response, after comparing the cluster id in it, if it is of a kind that has one."""
        if hasattr(response, "cluster_id") and not response.error_code:
            self._verify_cluster_id(response.cluster_id)
        return response

    def _least_loaded_broker(self, tried: set[int]) -> int:
        network = self.session().network
        best = network.least_loaded_node()
        untried = [node.node_id for node in network.nodes if node.node_id not in tried]
        # kafka-python may choose a broker again that has just failed.
        if best is not None and best not in tried:
            return best
        if not untried:
            # No broker in the table responds: get the current brokers from the bootstrap servers.
            self._drop_session()
            tried.clear()
            untried = [node.node_id for node in self.session().network.nodes]
        return untried[0]

    def _find_controller(self, _tried: set[int]) -> int:
        if self._controller is None:
            controller = int(self.metadata(()).controller_id)
            if controller < 0:
                # An error of kafka-python that is retried: an election takes a moment.
                raise kafka.errors.NodeNotReadyError("the cluster has no controller at the moment")
            self._controller = controller
        return self._controller

    def _drop_session(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = self._controller = None

    def _raise_translated(self, error: Exception, name: str, *, change: bool) -> NoReturn:
        if isinstance(error, REFUSED):
            raise authentication_error(error, self.servers) from error
        if isinstance(error, kafka.errors.IncompatibleBrokerVersion):
            sentence = f"Kafka at {self.servers} is too old for our request {name}: upgrade it to Kafka 3.3 or newer."
            raise KafkaRefused(35, str(error), sentence) from error
        words = _error_text(error)
        late = isinstance(error, _TIMEOUTS)
        waited = f"within {self.timeout_ms / 1000:g} s ({_TIMEOUT})"
        if change:
            raise KafkaTimeout(
                f"Kafka at {self.servers} did not confirm {name} {waited if late else f'({words})'}; it may have been "
                "applied nevertheless: list the reassignments in flight before a retry."
            ) from error
        if late:
            raise KafkaTimeout(f"Kafka at {self.servers} did not answer {name} {waited}; try again.") from error
        where = self._session.describe_unreachable() if self._session is not None else ""
        if where and self._session is not None:
            raise ClusterUnreachable(f"{self._session.answering_server} answered, and names its brokers {where}.")
        raise ClusterUnreachable(f"No broker of {self.servers} responded ({words}); check that they run.") from error

    def _response_or_error(self, session: Session, broker: int, answer: Any, asked: Request, waited: str) -> Any:
        if isinstance(answer, kafka.errors.IncompatibleBrokerVersion):
            self._raise_translated(answer, request_name(asked()), change=False)
        if isinstance(answer, _TIMEOUTS):
            return KafkaTimeout(f"Broker {broker} did not answer {request_name(asked())} {waited}.")
        if isinstance(answer, kafka.errors.KafkaError):
            where = session.describe_unreachable(broker)
            why = f"is named {where}" if where else f"cannot be reached ({_error_text(answer)})"
            return BrokerUnreachable(broker, f"Broker {broker} {why}.")
        return self._verify_response(answer)


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split `items` into batches of at most `MAX_BATCH`, each small enough for one request."""
    return (items[start : start + MAX_BATCH] for start in range(0, len(items), MAX_BATCH))
