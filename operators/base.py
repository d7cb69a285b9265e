"""Common parts of the operators: the cluster, the settings, and the actor for the audit trail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kafka_steward.errors import RequestError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.hooks.context import hook_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_steward.hooks.steward import ClusterSession, StewardHook

__all__ = ["StewardOperator", "attempt_folder", "opened_by", "skip_rest", "fail_without_retry"]

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
        """Return the connected cluster and its journal, as a context manager. Raises as `opened_by` does."""
        return opened_by(hook_of(self, context))


def opened_by(hook: StewardHook) -> ClusterSession:
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


def skip_rest(task: BaseOperator, context: Context, sentence: str) -> NoReturn:
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
