"""The trigger that cancels or rolls back a plan: it steps a `CancelRunner` to the end, and fires once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from kafka_steward.triggers.run_plan import RunPlanTrigger

if TYPE_CHECKING:
    from kafka_steward.execution.lifecycle import Scope
    from kafka_steward.execution.runner import StepRunner
    from kafka_steward.hooks.steward import ClusterSession


class UndoPlanTrigger(RunPlanTrigger):
    """Cancels the plan `digest`, and with the scope "plan" rolls it back; fires as RunPlanTrigger does.

    Stopping the trigger stops its steps and nothing else: the request stays in the journal, where another process can
    resume it.
    """

    def __init__(
        self,
        conn_id: str,
        digest: str,
        overrides: Mapping[str, Any] | None = None,
        who: Mapping[str, Any] | None = None,
        *,
        scope: str = "pending",
        reason: str = "",
        even_if_disabled: bool = False,
        journal: Mapping[str, Any] | None = None,
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__(conn_id, digest, overrides, who, journal=journal)
        self.scope = scope
        self.reason = reason
        self.even_if_disabled = even_if_disabled

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and keywords, enough to rebuild the trigger in any triggerer."""
        names = ("conn_id", "digest", "overrides", "who", "scope", "reason", "even_if_disabled", "journal")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    def _new_runner(self, opened: ClusterSession) -> StepRunner:
        from kafka_steward.execution.cancel_runner import CancelRunner
        from kafka_steward.journal.audit import Actor

        return CancelRunner(
            opened.cluster,
            opened.journal,
            self.digest,
            opened.settings,
            Actor(**self.who),
            scope=cast("Scope", self.scope),
            reason=self.reason,
            even_if_disabled=self.even_if_disabled,
        )
