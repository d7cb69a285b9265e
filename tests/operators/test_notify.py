from __future__ import annotations

from typing import Any

from airflow.sdk import BaseNotifier

from kafka_steward.operators.base import notify, to_notifier_list
from tests.airflow_home import context


class Remembering(BaseNotifier):
    """A notifier in Airflow's own form, with a template."""

    template_fields = ("message",)

    def __init__(self) -> None:
        super().__init__()
        self.message = "{{ kafka_steward.event }}: {{ kafka_steward.sentence }}"
        self.told: list[str] = []

    def notify(self, context: Any) -> None:  # noqa: ARG002 - Airflow's
        self.told.append(self.message)


def test_one_or_several_or_none() -> None:
    assert to_notifier_list(None) == []
    assert to_notifier_list(print) == [print]
    assert to_notifier_list([print, repr]) == [print, repr]


def test_airflows_notifiers_and_functions_get_the_facts() -> None:
    notifier = Remembering()
    heard: list[Any] = []
    notify([notifier, heard.append], context(), "healed", {"sentence": "All whole.", "brokers": [3]})
    assert notifier.told == ["healed: All whole."]
    assert heard[0]["kafka_steward"] == {"event": "healed", "sentence": "All whole.", "brokers": [3]}
    assert heard[0]["ti"].task_id == "task"


def test_one_that_fails_stops_neither_the_others_nor_the_task() -> None:
    heard: list[Any] = []

    def broken(_: Any) -> None:
        raise ZeroDivisionError

    notify([broken, heard.append], context(), "healed", {"sentence": "All whole."})
    assert len(heard) == 1
