"""Every error that Kafka Steward raises, by whose fault it was.

::

    StewardError
    ├── RequestError             what was asked for cannot be done: mend the request
    │   ├── SettingError           a setting is missing, unknown or out of range
    │   ├── PlanError              a plan is unknown, edited, unproven, or of another cluster
    │   └── DocumentError          a journal document cannot be read
    ├── ClusterError             Kafka cannot, or will not: mend the cluster, or wait
    │   ├── ClusterUnreachable     no bootstrap server answers
    │   ├── AuthenticationFailed   they answer, and refuse the credentials
    │   ├── WrongCluster           the address answers with another cluster's id
    │   ├── BrokerUnreachable      one broker does not answer
    │   ├── KafkaTimeout           no answer in time: it may have been done all the same
    │   └── KafkaRefused           Kafka said no; carries Kafka's own words
    ├── JournalError             the durable record
    │   ├── JournalUnreachable     its database or ZooKeeper does not answer
    │   ├── NodeExists, NodeMissing, VersionConflict
    │   │                          a tree operation met another state than it expected
    │   ├── WrongJournal           another journal than was meant, or one half of it
    │   ├── SlotTaken              another plan owns the cluster
    │   └── LockLost               another process steps the plan: this one must stop
    ├── PlanningFailed           the Spark job ended without a plan
    └── SandboxFailed            a local cluster for demo and tests could not be had, or did not do as asked

The message of each is one sentence for a person: what is wrong, where, and what to do.
"""

from __future__ import annotations

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
    "NodeExists",
    "NodeMissing",
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
    """Anything that Kafka Steward raises on purpose."""


class RequestError(StewardError, ValueError):
    """What was asked for cannot be done."""


class SettingError(RequestError):
    """A setting is missing, unknown or out of range."""


class PlanError(RequestError):
    """A plan is unknown, edited, unproven, or of another cluster."""


class DocumentError(RequestError):
    """A journal document cannot be read."""


class ClusterError(StewardError, RuntimeError):
    """Kafka cannot, or will not."""


class ClusterUnreachable(ClusterError, ConnectionError):
    """No bootstrap server answers."""


class AuthenticationFailed(ClusterError, PermissionError):
    """The servers answer and refuse the credentials."""


class WrongCluster(ClusterError):
    """The address answers with another cluster's id than it did before."""


class BrokerUnreachable(ClusterError, ConnectionError):
    """One broker does not answer."""

    def __init__(self, broker: int, sentence: str) -> None:
        super().__init__(sentence)
        self.broker = broker


class KafkaTimeout(ClusterError, TimeoutError):
    """Kafka gave no answer in time. The change may have been applied all the same: list before believing."""


class KafkaRefused(ClusterError):
    """Kafka refused; `message` is in Kafka's own words, `code` is its error code."""

    def __init__(self, code: int, message: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.message = message


class JournalError(StewardError, RuntimeError):
    """The durable record failed, or holds something else than was expected."""


class JournalUnreachable(JournalError, ConnectionError):
    """The journal's database or ZooKeeper does not answer."""


class NodeExists(JournalError):
    """A node was to be created, and exists."""


class NodeMissing(JournalError):
    """A node was to be changed, and does not exist."""


class VersionConflict(JournalError):
    """A node was changed by someone else since it was read."""


class WrongJournal(JournalError):
    """Another journal than was meant, or one half of it without the other."""


class SlotTaken(JournalError):
    """Another plan owns the cluster; `owner` is its digest."""

    def __init__(self, owner: str, sentence: str) -> None:
        super().__init__(sentence)
        self.owner = owner


class LockLost(JournalError):
    """Another process steps the plan now; this one must change nothing more."""


class PlanningFailed(StewardError, RuntimeError):
    """The Spark job ended without a plan."""


class SandboxFailed(StewardError, RuntimeError):
    """A local cluster could not be had, or did not do as asked."""
