"""Validation of a run's conf before its first task acts: Airflow itself accepts unknown keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kafka_steward.escaping import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["refuse_unknown_keys", "unknown_keys"]

#: Airflow's TriggerDagRunOperator adds this key to every conf.
_OF_AIRFLOW = frozenset({"openlineage"})


def refuse_unknown_keys(context: Context) -> None:
    """Fail the task without a retry when the run's conf has a key that is not a parameter of its DAG.

    Meant as the `pre_execute` of a DAG's first task: it calls neither Kafka nor the journal.
    """
    dag = context["dag"]
    sentence = unknown_keys(getattr(context["dag_run"], "conf", None) or {}, tuple(dag.params), dag.dag_id)
    if sentence:
        raise AirflowFailException(printable(sentence))


def unknown_keys(conf: Mapping[str, Any], known: Collection[str], dag_id: str) -> str:
    """Return the message that rejects the keys of `conf` that are not `known`; empty when all are known. Pure."""
    unknown = sorted(str(key) for key in conf if key not in known and key not in _OF_AIRFLOW)
    if not unknown:
        return ""
    named = " and ".join(_named(key, known) for key in unknown[:3])
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    return f"The DAG {dag_id} has no parameter {named}{more}; trigger it with its own, which its form lists."


def _named(key: str, known: Collection[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{key[:100]!r} (did you mean {close[0]!r}?)" if close else f"{key[:100]!r}"
