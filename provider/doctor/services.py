"""Managed Kafka services, known by the addresses and ids with which they answer, and what they keep from us. Pure.

The limits are those of the vendors' documents. What a service refuses of our own requests is found by asking it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """A managed Kafka. `advice` is empty for one on which everything is expected to work.

    With `balances`, it moves replicas itself; with `moves` off, it lets nobody else move them.
    """

    name: str
    advice: str = ""
    moves: bool = True
    balances: bool = False


_CONFLUENT_CLOUD = Service(
    "Confluent Cloud", "it balances itself and takes no reassignments: use health and status only", False, True
)
_EVENT_HUBS = Service("Azure Event Hubs", "it has no brokers to move replicas between: it is not supported", False)
_MSK_SERVERLESS = Service("Amazon MSK Serverless", "it takes no reassignments: it is not supported", False, True)
_MSK = Service(
    "Amazon MSK",
    "with Express brokers, pause intelligent rebalancing first (set throttle to 0 if throttles are refused)",
)
_REDPANDA = Service("Redpanda", "disable its continuous balancing, or both move the same replicas", balances=True)
_AIVEN = Service("Aiven for Apache Kafka", "its own maintenance moves replicas, too", balances=True)
_GOOGLE = Service("Google Cloud Managed Service for Apache Kafka", "turn its automatic rebalancing off", balances=True)
_INSTACLUSTR = Service("Instaclustr for Apache Kafka", "its own maintenance may move replicas, too")

#: By the ends of the brokers' host names.
_BY_HOST = (
    ("confluent.cloud", _CONFLUENT_CLOUD),
    ("servicebus.windows.net", _EVENT_HUBS),
    ("aivencloud.com", _AIVEN),
    ("cloud.goog", _GOOGLE),
    ("instaclustr.com", _INSTACLUSTR),
    ("redpanda.com", _REDPANDA),
)
_AMAZON = re.compile(r"\.kafka(?P<serverless>-serverless)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$")
#: By the beginning of the cluster id.
_BY_ID = (("lkc-", _CONFLUENT_CLOUD), ("redpanda.", _REDPANDA))


def find_service(cluster_id: str, hosts: Collection[str]) -> Service | None:
    """Return the service that a cluster is of; None for a Kafka of one's own, or an unknown service."""
    for beginning, service in _BY_ID:
        if cluster_id.startswith(beginning):
            return service
    names = [host.lower().rstrip(".") for host in hosts]
    for name in names:
        amazon = _AMAZON.search(name)
        if amazon is not None:
            return _MSK_SERVERLESS if amazon["serverless"] else _MSK
        for end, service in _BY_HOST:
            if name == end or name.endswith(f".{end}"):
                return service
    return None
