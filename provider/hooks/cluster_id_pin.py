"""The stored cluster.id of a connection's bootstrap servers: a swapped cluster is rejected instead of healed."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from kafka_steward.errors import DocumentError, NodeExists, NodeMissing, VersionConflict
from kafka_steward.hooks.access import ClusterConfig
from kafka_steward.journal.codec import is_text, parse_json
from kafka_steward.journal.open import Journal, open_journal
from kafka_steward.journal.quarantine import quarantine_document
from kafka_steward.journal.tree import Node

__all__ = ["ClusterIdPin"]

#: The journal is keyed by cluster.id; data that precedes the id is kept under this key, which no cluster has.
_NO_CLUSTER = "connections"


@dataclass(frozen=True)
class ClusterIdPin:
    """The stored ids in the journal at `journal_url`, by bootstrap servers: other servers may be another cluster."""

    journal_url: str

    def get(self, access: ClusterConfig) -> str | None:
        """Return the stored cluster id of these bootstrap servers; None if there is none."""
        with self._journal() as journal:
            node = journal.tree.get(_path(access))
            known = _known(node)
            if node and known is None:
                # An unreadable node is quarantined, not trusted and not lost; the next connection writes a new one.
                quarantine_document(journal.tree, node, f"{node.path} holds no cluster_id.", None)
        return known

    def set(self, access: ClusterConfig, cluster_id: str) -> None:
        """Store the current id of these servers. It replaces a different one only if a user configured `cluster_id`."""
        document = {"version": 1, "conn_id": access.conn_id, "bootstrap": access.bootstrap, "cluster_id": cluster_id}
        with self._journal() as journal:
            node = journal.tree.get(_path(access))
            if node and _known(node) == cluster_id:
                return
            # A concurrent writer connected to the same servers, so its value is equivalent.
            with suppress(NodeExists, NodeMissing, VersionConflict):
                if node:
                    journal.tree.set(node.path, json.dumps(document), version=node.version)
                else:
                    journal.tree.create(_path(access), json.dumps(document))

    def _journal(self) -> Journal:
        return open_journal(self.journal_url, _NO_CLUSTER, compare=False)


def _known(node: Node | None) -> str | None:
    if node is None:
        return None
    try:
        value = parse_json(node.path, node.data)
    except DocumentError:
        return None
    known = value.get("cluster_id") if isinstance(value, dict) else None
    return known if is_text(known) else None


def _path(access: ClusterConfig) -> str:
    return f"/steward/connections/{sha256(access.bootstrap.encode()).hexdigest()[:32]}"
