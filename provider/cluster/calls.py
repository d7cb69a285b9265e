"""Requests to any broker, to the controller, to each broker by itself; and what to do when no answer comes.

kafka-python caches the controller and keeps asking it after its death, lets one broker that hangs use up a call's
time, and does not know brokers that came after its last look. Here each attempt has its own time, another broker is
tried when one fails, and the client is made anew when its table of brokers is of no more use.

A request that was sent and not answered may have been carried out. A change is tried again when the connection failed
(the same targets, the same entries: twice is as good as once), and never after a time-out. A creation is not: the
second one is refused for what the first one made. It is asked once, and who asked looks at what became of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import kafka.errors

from kafka_steward.cluster import requests
from kafka_steward.cluster.exchange import (
    RETRIABLE,
    TIMEOUTS,
    Request,
    answer_of,
    answers_of,
    is_unknown,
    refresh_nodes,
    words_of,
)
from kafka_steward.cluster.session import REFUSED, Session, authentication_failed
from kafka_steward.errors import (
    BrokerUnreachable,
    ClusterError,
    ClusterUnreachable,
    KafkaRefused,
    KafkaTimeout,
    WrongCluster,
)

__all__ = ["Calls", "batches"]

#: A ZooKeeper-mode controller takes about 15 ms for each partition of a request, and the request has one time-out.
BATCH = 50

#: A read is tried on this many brokers within the time of one request.
READ_ATTEMPTS = 3
_PAUSE_S = 0.2
#: Even the last attempt has this long.
_LEAST_MS = 1000
Item = TypeVar("Item")


class Calls:
    """The way to one cluster, known by its id: an answer from another one raises WrongCluster."""

    def __init__(self, config: Mapping[str, Any], expected_cluster_id: str | None) -> None:
        self.servers = ", ".join(config["bootstrap_servers"])
        self.timeout_ms = int(config["request_timeout_ms"])
        self.cluster_id = expected_cluster_id or ""
        self._config = config
        self._lock = threading.RLock()
        self._controller: int | None = None
        self._session: Session | None = None
        self._closed = False
        self.session()

    def session(self) -> Session:
        """The live client; made anew when there is none, or when this process is a fork of the one that made it."""
        with self._lock:
            if self._closed:
                raise ClusterUnreachable(f"The connection to {self.servers} was closed; open another one.")
            if self._session is None or not self._session.usable:
                self._session = self._recognised(Session.open(self._config))
            return self._session

    @property
    def server_timeout_ms(self) -> int:
        """What Kafka is told to take at most: less than we wait, so that its own answer arrives."""
        return self.timeout_ms * 9 // 10

    def close(self) -> None:
        """End the client."""
        with self._lock:
            self._drop_session()
            self._closed = True

    def metadata(self, topics: Collection[str] | None) -> Any:
        """A Metadata answer, from the right cluster."""
        response = self.any(lambda: requests.metadata_request(topics))
        if response.error_code:
            # Without this, a refusal would pass for a cluster without topics.
            raise requests.refusal(int(response.error_code), None, "describing the cluster's topics")
        self.recognise(response.cluster_id)
        return response

    def any(self, request: Request) -> Any:
        """The answer of any broker to a read."""
        return self._insist(request, self._least_loaded, self.timeout_ms // READ_ATTEMPTS, change=False)

    def controller(self, request: Request, *, change: bool, once: bool = False) -> Any:
        """Return the controller's answer; what is asked `once` is not asked again when it may have been heard.

        Raises KafkaTimeout: a change may have been carried out all the same.
        """
        attempt_ms = self.timeout_ms if change else self.timeout_ms // READ_ATTEMPTS
        if once:
            self._controller = None  # one that has died since would cost the only attempt
        return self._insist(request, self._find_controller, attempt_ms, change=change, once=once)

    def each(self, asked: Mapping[int, Request], *, timeout_ms: int | None = None) -> dict[int, Any]:
        """Each broker's answer, all asked at once; a BrokerUnreachable or KafkaTimeout for one that gives none."""
        wait_ms = timeout_ms or self.timeout_ms
        manager = self.session().manager
        answers = manager.run(answers_of, manager, asked, wait_ms)
        unknown = {broker: asked[broker] for broker, answer in answers.items() if is_unknown(answer)}
        if unknown:
            # They may have joined since kafka-python's last look.
            manager.run(refresh_nodes, manager, wait_ms)
            answers |= manager.run(answers_of, manager, unknown, wait_ms)
        return {broker: self._broker_answer(broker, answer) for broker, answer in answers.items()}

    def recognise(self, cluster_id: str | None) -> None:
        """Hold an answer's cluster id against the one that we know. Raises WrongCluster."""
        if not cluster_id:
            raise ClusterUnreachable(f"The cluster at {self.servers} has no id yet; try again when it has started.")
        self.cluster_id = self.cluster_id or str(cluster_id)
        if cluster_id != self.cluster_id:
            raise WrongCluster(
                f"{self.servers} answers as cluster {cluster_id}, where {self.cluster_id} was expected; check the "
                "connection's bootstrap servers."
            )

    def _recognised(self, session: Session) -> Session:
        try:
            self.recognise(session.cluster_id)
        except ClusterError:
            session.close()
            raise
        return session

    def _insist(
        self,
        request: Request,
        choose: Callable[[set[int]], int],
        attempt_ms: int,
        *,
        change: bool,
        once: bool = False,
    ) -> Any:
        """Ask the broker that `choose` names, others after it, until one answers or the time is up."""
        deadline = time.monotonic() + self.timeout_ms / 1000
        tried: set[int] = set()
        sent = False
        while True:
            try:
                node = choose(tried)
                tried.add(node)
                left_ms = int((deadline - time.monotonic()) * 1000)
                return self._exchange(request(), node, max(_LEAST_MS, min(attempt_ms, left_ms)))
            except kafka.errors.KafkaError as error:
                sent = sent or isinstance(error, (kafka.errors.KafkaConnectionError, *TIMEOUTS))
                unsure = isinstance(error, TIMEOUTS) or once
                last = (change and sent and unsure) or time.monotonic() >= deadline
                self._forget(error)
                if last or not isinstance(error, RETRIABLE):
                    self._give_up(error, change=change and sent)
            except ClusterUnreachable as error:
                # The whole cluster went away between two attempts.
                if change and sent:
                    self._give_up(error, change=True)
                raise
            time.sleep(_PAUSE_S)

    def _exchange(self, request: Any, node: int, attempt_ms: int) -> Any:
        manager = self.session().manager
        response = manager.run(answer_of, manager, request, node, attempt_ms)
        code = getattr(response, "error_code", requests.NONE)
        if code == requests.NOT_CONTROLLER:
            raise kafka.errors.NotControllerError
        if code == requests.TIMED_OUT:
            raise kafka.errors.RequestTimedOutError("the controller did not answer the broker in time")
        return response

    def _least_loaded(self, tried: set[int]) -> int:
        manager = self.session().manager
        best = manager.least_loaded_node()
        others = [broker.node_id for broker in manager.cluster.brokers() if broker.node_id not in tried]
        if best is not None and best not in tried:
            return int(best)
        if not others:
            # Nobody in the table answers: ask the bootstrap servers who is there.
            self._drop_session()
            tried.clear()
            others = [broker.node_id for broker in self.session().manager.cluster.brokers()]
        return int(others[0])

    def _find_controller(self, _tried: set[int]) -> int:
        if self._controller is None:
            controller = int(self.metadata(()).controller_id)
            if controller < 0:
                raise kafka.errors.NodeNotReadyError("the cluster has no controller at the moment")
            self._controller = controller
        return self._controller

    def _forget(self, error: Exception) -> None:
        self._controller = None
        if is_unknown(error):
            self._drop_session()

    def _drop_session(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = self._controller = None

    def _give_up(self, error: Exception, *, change: bool) -> NoReturn:
        if isinstance(error, REFUSED):
            raise authentication_failed(error, self.servers) from error
        if isinstance(error, kafka.errors.IncompatibleBrokerVersion):
            raise KafkaRefused(35, str(error), f"Kafka at {self.servers} is too old for this: {error}.") from error
        words = words_of(error)
        if change:
            raise KafkaTimeout(
                f"Kafka at {self.servers} did not confirm a change in time ({words}); it may have been applied all the "
                "same: list what is in flight before asking again."
            ) from error
        if isinstance(error, TIMEOUTS):
            raise KafkaTimeout(f"Kafka at {self.servers} did not answer in time ({words}); try again.") from error
        raise ClusterUnreachable(f"No broker of {self.servers} could answer ({words}); check that they run.") from error

    def _broker_answer(self, broker: int, answer: Any) -> Any:
        if isinstance(answer, kafka.errors.IncompatibleBrokerVersion):
            self._give_up(answer, change=False)
        if isinstance(answer, TIMEOUTS):
            return KafkaTimeout(f"Broker {broker} did not answer in time ({words_of(answer)}).")
        if isinstance(answer, kafka.errors.KafkaError):
            return BrokerUnreachable(broker, f"Broker {broker} cannot be reached ({words_of(answer)}).")
        return answer


def batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """`items` in pieces that one request can carry."""
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
