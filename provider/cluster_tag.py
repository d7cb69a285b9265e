"""The tags by which the DAGs of one cluster, and the workflow of each, are found. Pure."""

from __future__ import annotations

from hashlib import sha256

#: The tag of every DAG of this provider.
STEWARD_TAG = "kafka-steward"
_CLUSTER, _WORKFLOW = f"{STEWARD_TAG}:", f"{STEWARD_TAG}-workflow:"
#: Airflow accepts no longer tag.
_LONGEST = 100


def cluster_tag(conn_id: str) -> str:
    """Return the tag of the DAGs of the cluster behind `conn_id`; a long id is cut, and ends with its hash."""
    tag = _CLUSTER + conn_id
    return tag if len(tag) <= _LONGEST else f"{tag[: _LONGEST - 13]}~{sha256(conn_id.encode()).hexdigest()[:12]}"


def workflow_tag(name: str) -> str:
    """Return the tag of the DAGs of one workflow, such as `cancel`, whatever their ids are."""
    return _WORKFLOW + name


def tagged_conn_id(tag: str) -> str | None:
    """Return the `conn_id` of a tag made by `cluster_tag`; None for other tags, and for one that was cut."""
    return tag[len(_CLUSTER) :] or None if tag.startswith(_CLUSTER) and "~" not in tag else None


def tagged_workflow(tag: str) -> str | None:
    """Return the workflow of a tag made by `workflow_tag`; None for other tags."""
    return tag[len(_WORKFLOW) :] or None if tag.startswith(_WORKFLOW) else None
