"""Every error that Kafka Steward raises, grouped by the side at fault.

::

    StewardError
    ├── RequestError             the request cannot be fulfilled: correct it
    │   ├── SettingError           a setting is missing, unknown or out of range
    │   ├── PlanError              a plan is unknown, edited, unproven, or of another cluster
    │   └── DocumentError          a journal document cannot be read
    ├── ClusterError             Kafka cannot comply, or refuses to: repair the cluster, or wait
    │   ├── ClusterUnreachable     no bootstrap server answers
    │   ├── AuthenticationFailed   they answer, and reject the credentials
    │   ├── WrongCluster           the address answers with another cluster's id
    │   ├── BrokerUnreachable      one broker does not answer
    │   ├── KafkaTimeout           no answer in time: the change may have been applied nevertheless
    │   └── KafkaRefused           Kafka rejected the request; carries Kafka's own message
    ├── JournalError             the durable record
    │   ├── JournalUnreachable     its database or ZooKeeper does not answer
    │   ├── VersionConflict        a row was changed by another process since it was read
    │   ├── WrongJournal           another journal than intended, or one half of it
    │   ├── SlotTaken              another plan holds the plan slot
    │   └── LockLost               another process steps the plan: this one must stop
    ├── NotificationFailed       a message could not be sent
    ├── PlanningFailed           the Spark job ended without a plan
    └── SandboxFailed            a local cluster for demo and tests could not start or misbehaved

Each message is one readable sentence: the fault, its place, and the remedy.
"""

from __future__ import annotations

from typing import ClassVar

from kafka_steward.escaping import printable

__all__ = [
    "AuthenticationFailed",
    "BrokerUnreachable",
    "ClusterError",
    "ClusterUnreachable",
    "DocumentError",
    "JournalError",
    "JournalUnreachable",
    "KafkaRefused",
    "KafkaTimeout",
    "LockLost",
    "NotificationFailed",
    "PlanError",
    "PlanningFailed",
    "RequestError",
    "SandboxFailed",
    "SettingError",
    "SlotTaken",
    "StewardError",
    "VersionConflict",
    "WrongCluster",
    "WrongJournal",
]


class StewardError(Exception):
    """Any error that Kafka Steward raises deliberately."""

    #: Whether waiting may resolve it: true for an unreachable cluster, false for a wrong password.
    retriable: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the message as one printable line: it may quote text from outside, and Airflow logs each error."""
        return printable(super().__str__())


class RequestError(StewardError, ValueError):
    """A request that cannot be fulfilled."""


class SettingError(RequestError):
    """A setting is missing, unknown or out of range."""


class PlanError(RequestError):
    """A plan is unknown, edited, unproven, or of another cluster."""


class DocumentError(RequestError):
    """A journal document cannot be read."""


class ClusterError(StewardError, RuntimeError):
    """Kafka cannot comply with a request, or refuses to."""

    retriable = True


class ClusterUnreachable(ClusterError, ConnectionError):
    """No bootstrap server answers."""


class AuthenticationFailed(ClusterError, PermissionError):
    """The servers answer and reject the credentials."""

    retriable = False


class WrongCluster(ClusterError):
    """The address answers with another cluster's id than it did before."""

    retriable = False


class BrokerUnreachable(ClusterError, ConnectionError):
    """One broker does not answer."""

    def __init__(self, broker: int, sentence: str) -> None:
        super().__init__(sentence)
        self.broker = broker


class KafkaTimeout(ClusterError, TimeoutError):
    """Kafka gave no answer in time. The change may have been applied nevertheless: check the state before retrying."""


class KafkaRefused(ClusterError):
    """Kafka rejected a request; `message` is Kafka's own text, `code` is its error code."""

    def __init__(self, code: int, message: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.message = message


class JournalError(StewardError, RuntimeError):
    """The durable record failed, or its content differs from what was expected."""

    retriable = True


class JournalUnreachable(JournalError, ConnectionError):
    """The journal's database or ZooKeeper does not answer."""


class VersionConflict(JournalError):
    """A row was changed by another process since it was read."""


class WrongJournal(JournalError):
    """Another journal than intended, or one half of it without the other."""

    retriable = False


class SlotTaken(JournalError):
    """Another plan holds the plan slot of the cluster: `owner` is its digest, `shared` names a partition of both."""

    #: The end of the message: what a person can do.
    REMEDY = "wait until it ends, cancel it, or abandon it."

    def __init__(self, owner: str, not_done: str, *, shared: str = "") -> None:
        super().__init__(f"{not_done}: {self.reason(owner, shared=shared)}; {self.REMEDY}")
        self.owner, self.shared = owner, shared

    @staticmethod
    def reason(owner: str, operation: str = "", *, shared: str = "") -> str:
        """Return the reason as a clause, with the operation of the holder and a partition of both if they are given."""
        kind = f" ({operation})" if operation else ""
        return f"plan {owner[:12]}{kind} holds the plan slot{f' and moves {shared}, too' if shared else ''}"


class LockLost(JournalError):
    """Another process steps the plan now; this one must make no further changes."""


class NotificationFailed(StewardError, RuntimeError):
    """A message could not be sent. The sentence leaves the address out, which is a secret with some channels."""


class PlanningFailed(StewardError, RuntimeError):
    """The Spark job ended without a plan."""


class SandboxFailed(StewardError, RuntimeError):
    """A local cluster could not start, or did not behave as requested."""

    def __str__(self) -> str:
        """Return the message unchanged: it may contain the last lines of a process."""
        return Exception.__str__(self)
