"""The Airflow plugin that adds the page to the navigation. Imports little: every Airflow process loads it."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog
from airflow.sdk.plugins_manager import AirflowPlugin

from kafka_steward.airflow_versions import conf
from kafka_steward.page_address import MOUNT, base_path

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger(__name__)

#: Airflow's servers build the URI of each connection that a task or trigger looks up, and warn each time that a type
#: with an underscore makes no scheme of RFC 3986, as models/connection.py of Airflow 3.3 formats it. Many of Airflow's
#: own types have one, and nothing follows from it. The triggerer, whose logs keep it, writes one for each connection.
_WARNING = "Connection schemes (type: kafka_steward) shall not contain '_' according to RFC3986."


class KafkaStewardPlugin(AirflowPlugin):
    """The page, as a FastAPI app of the api-server and an entry of the navigation."""

    name = "kafka_steward"

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:  # noqa: ARG003 - Airflow's
        """Keep a warning about the name of our connection type out of the logs of Airflow's servers."""
        processors = structlog.get_config()["processors"]
        if _drop_scheme_warning not in processors:
            structlog.configure(processors=[_drop_scheme_warning, *processors])

    @cached_property
    def external_views(self) -> list[Any]:  # type: ignore[override]
        """The entry of the navigation. Airflow shows a view in a frame, and does not add its own path to the URLs."""
        mount = base_path(conf.get("api", "base_url", fallback=None)) + MOUNT
        return [
            {
                "name": "Kafka",
                "href": f"{mount}/",
                "destination": "nav",
                "url_route": "kafka-steward",
                "nav_top_level": True,
                "icon": f"{mount}/static/icon.svg",
                "icon_dark_mode": f"{mount}/static/icon-dark.svg",
            }
        ]

    @cached_property
    def fastapi_apps(self) -> list[Any]:  # type: ignore[override]
        """The app, built at the first access: only the api-server asks for it, and `airflow plugins`."""
        try:
            return [{"app": _build_app(), "url_prefix": MOUNT, "name": "Kafka Steward"}]
        except Exception:
            log.exception("The page of Kafka Steward is not shown: it cannot be built.")
            return []


def _drop_scheme_warning(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if event.get("event") == _WARNING:
        raise structlog.DropEvent
    return event


def _build_app() -> FastAPI:
    from kafka_steward.ui.app import create_app  # noqa: PLC0415 - a scheduler, worker or triggerer needs no web server

    return create_app()
