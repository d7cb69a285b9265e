"""Common parts of the operators: the cluster, the end of a task, the validation of a run's conf, the notifiers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import structlog
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.errors import RequestError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.hooks.session import ClusterSession
    from kafka_steward.hooks.steward import StewardHook
    from kafka_steward.journal.store import Journal

__all__ = [
    "Notifiers",
    "StewardOperator",
    "to_notifier_list",
    "attempt_folder",
    "fail_without_retry",
    "notify",
    "open_session",
    "refuse_unknown_keys",
    "skip_downstream",
    "unknown_keys_message",
]

log = structlog.get_logger(__name__)

#: One or several of Airflow's notifiers, or functions of the context.
Notifiers: TypeAlias = "Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None"
#: Airflow's TriggerDagRunOperator adds this key to every conf.
_OF_AIRFLOW = frozenset({"openlineage"})

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class StewardOperator(BaseOperator):
    """An operator of the cluster behind `conn_id`.

    `settings` overrides settings of the connection by name; a DAG parameter of the same name overrides both.
    """

    template_fields: Sequence[str] = ("conn_id", "settings")

    def __init__(
        self,
        *,
        conn_id: str = "kafka_steward_default",
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.settings = dict(settings or {})

    def open(self, context: Context) -> ClusterSession:
        """Return the connected cluster and its journal, as a context manager. Raises as `open_session` does."""
        return open_session(hook_of(self, context))

    def open_journal(self, context: Context) -> Journal:
        """Return the open journal of the cluster, as a context manager. Works while the cluster is down, too."""
        hook = hook_of(self, context)
        return hook.journal(hook.cluster_id())


def tools_connection(hook: StewardHook) -> str:
    """Return the options by which Kafka's own tools connect to the cluster of the hook."""
    from kafka_steward.doctor.findings import Commands

    return Commands.of(hook.conn_id, hook.access.client, hook.access.bootstrap).connection


def open_session(hook: StewardHook) -> ClusterSession:
    """Return the hook's open cluster and journal. Raises a StewardError that a retry may resolve.

    Every other StewardError becomes an AirflowFailException with its message: a wrong password or a missing connection
    fails the task at once instead of on every retry.
    """
    try:
        return hook.open()
    except StewardError as error:
        if error.retriable:
            raise
        raise AirflowFailException(str(error)) from error


@contextmanager
def fail_without_retry(*, but: tuple[type[RequestError], ...] = ()) -> Iterator[None]:
    """Turn a RequestError into an AirflowFailException with its message: no retry would change the result.

    Errors of the types in `but` are re-raised unchanged, because a later try may succeed.
    """
    try:
        yield
    except but:
        raise
    except RequestError as error:
        raise AirflowFailException(str(error)) from error


def skip_downstream(task: BaseOperator, context: Context, sentence: str) -> NoReturn:
    """Skip this task and its downstream tasks; write the reason to the log and to the XCom `sentence`.

    Airflow discards the message of a skip exception.
    """
    task.log.info("%s", printable(sentence))
    context["ti"].xcom_push("sentence", sentence)
    raise AirflowSkipException(printable(sentence))


def attempt_folder(opened: ClusterSession, context: Context, what: str) -> str:
    """Return the folder in which this try of this run puts its snapshot or plan: no other try writes there."""
    task = context["ti"]
    run = "/".join(map(_folder_name, (opened.cluster.cluster_id, task.dag_id, task.run_id)))
    return f"{opened.access.workspace}/{run}/{_folder_name(task.task_id)}-{what}-{task.try_number}"


def _folder_name(text: str) -> str:
    """Return a folder name that every file system accepts and that no other text maps to."""
    name = _UNSAFE.sub("_", text)
    if name == text and name.strip("."):
        return name
    # `a:b` and `a+b` are two different runs, and `..` must not lead out of the workspace.
    return f"{name}-{sha256(text.encode()).hexdigest()[:12]}"


def refuse_unknown_keys(context: Context) -> None:
    """Fail the task without a retry when the run's conf has a key that is not a parameter of its DAG.

    Meant as the `pre_execute` of a DAG's first task: it calls neither Kafka nor the journal.
    """
    dag = context["dag"]
    sentence = unknown_keys_message(getattr(context["dag_run"], "conf", None) or {}, tuple(dag.params), dag.dag_id)
    if sentence:
        raise AirflowFailException(printable(sentence))


def unknown_keys_message(conf: Mapping[str, Any], known: Collection[str], dag_id: str) -> str:
    """Return the message that rejects the keys of `conf` that are not `known`; empty when all are known. Pure."""
    unknown = sorted(str(key) for key in conf if key not in known and key not in _OF_AIRFLOW)
    if not unknown:
        return ""
    named = " and ".join(_suggest_key(key, known) for key in unknown[:3])
    more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
    return f"The DAG {dag_id} has no parameter {named}{more}; trigger it with its own, which its form lists."


def _suggest_key(key: str, known: Collection[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{key[:100]!r} (did you mean {close[0]!r}?)" if close else f"{key[:100]!r}"


def to_notifier_list(given: Notifiers) -> list[Callable[[Any], Any]]:
    """Return the notifiers as a list, whether none, one or several are given."""
    if given is None:
        return []
    return [given] if callable(given) else list(given)


def notify(notifiers: Sequence[Callable[[Any], Any]], context: Context, event: str, facts: Mapping[str, Any]) -> bool:
    """Call each notifier with the context plus the key `kafka_steward`: `{"event", "sentence", ...}`.

    A notifier that fails is only logged: an undelivered notification must not stop the repair of a cluster. Return
    False if all of them failed.
    """
    payload = {**context, "kafka_steward": {"event": event, **facts}}
    results = [_call_notifier(notifier, payload) for notifier in notifiers]
    return any(results) or not results


def _call_notifier(notifier: Callable[[Any], Any], payload: Mapping[str, Any]) -> bool:
    try:
        notifier(payload)
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        log.warning("A notifier failed", notifier=repr(notifier), error=repr(error))
        return False
    return True
