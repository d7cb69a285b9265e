"""The trigger that probes the workspace from the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kafka_steward.triggers.base import ClusterTrigger


class ProbeWorkspaceTrigger(ClusterTrigger):
    """Writes, reads and deletes a file in the workspace, and looks for the file `marker`; fires once with the result.

    Neither Kafka nor the journal is used.
    """

    KEYWORDS = ("conn_id", "marker", "overrides")

    def __init__(
        self,
        conn_id: str,
        marker: str = "",
        overrides: Mapping[str, Any] | None = None,
        **_: Any,  # a trigger outlives an upgrade: keywords of other versions are accepted
    ) -> None:
        super().__init__(conn_id, overrides, None)
        self.marker = marker

    async def payload(self) -> dict[str, Any]:
        """Return the probe as JSON values."""
        return await asyncio.to_thread(self._probe)

    def _probe(self) -> dict[str, Any]:
        from kafka_steward.doctor.planning import probe_workspace
        from kafka_steward.hooks.steward import StewardHook

        hook = StewardHook(self.conn_id, self.overrides)
        return probe_workspace(lambda: hook.workspace, self.marker).to_json()
