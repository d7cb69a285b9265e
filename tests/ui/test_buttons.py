"""What the buttons and the night card ask for: the request, and the commands that do the same in a terminal."""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.ui.conftest import Visit, Visitor, dags_of, everything
from tests.ui.pictures import PICTURES
from tests.ui.scene import HOSTILE, Scene
from tests.ui.test_pages import FAILED, MOVING, QUIET, RUNNING, Elements, buttons, shown

if TYPE_CHECKING:
    # Not at run time: Airflow must be imported after tests.airflow_home.
    from airflow.sdk import DAG

    from kafka_steward.ui.access import PendingApproval
    from kafka_steward.ui.buttons import Button, ButtonMaker

#: A value for each word of a command that a person has to replace.
PLACEHOLDERS = {"BROKER": "3", "DAG_ID": "heal_it", "IDS": "3,4", "RATE": "50M"}


def read(command: str) -> Namespace:
    """The arguments of a command, as Airflow's own parser reads them."""
    from airflow.cli.cli_parser import get_parser

    program, *words = (PLACEHOLDERS.get(word, word) for word in shlex.split(command))
    assert program == "airflow"
    return get_parser().parse_args(words)


def commands(text: str) -> list[str]:
    """The commands of Airflow that a page shows, each of them alone."""
    found = [html.unescape(each) for each in re.findall(r"<code>(.*?)</code>", text)]
    return [part for each in found if each.startswith("airflow ") for part in each.split(" && ")]


def pending(*, answerable: bool, subject: str = "Move 3 replicas?") -> PendingApproval:
    from kafka_steward.ui.access import PendingApproval

    return PendingApproval("rebalance_it", "manual__1+02:00", "approve", -1, subject, 0, answerable)


def maker(conn_id: str = MOVING, base: str = "") -> ButtonMaker:
    from kafka_steward.ui.buttons import ButtonMaker

    return ButtonMaker(conn_id, base, dags_of(conn_id), Visitor().may_trigger)


def all_buttons(conn_id: str) -> list[Button]:
    """All buttons but the answers to an approval, those of a cluster with reassignments enabled and disabled."""
    made, cluster = maker(conn_id), [SimpleNamespace(switch=switch) for switch in (None, "disabled")]
    several: Any = [made.of_plan(RUNNING), made.of_ended_plan(RUNNING), *map(made.of_cluster, cluster)]  # type: ignore[arg-type]
    return [button for each in several for button in each]


def workflow_dags() -> dict[str, DAG]:
    """A DAG of each workflow, by the name in its tag."""
    from kafka_steward import dags
    from kafka_steward.cluster_tag import tagged_workflow

    makers = [
        *(dags.alert, dags.apply, dags.cancel, dags.controls, dags.fill, dags.heal),
        *(dags.health, dags.probe, dags.rebalance, dags.throttle),
    ]
    made = [*(make(conn_id=MOVING) for make in makers), dags.rebalance(MOVING, on_join=True)]
    return {next(filter(None, map(tagged_workflow, dag.tags))): dag for dag in made}


@pytest.mark.parametrize(("page", "conn_id"), [("cluster", MOVING), ("cluster", FAILED), ("plan", MOVING)])
def test_each_command_beside_a_button_is_one_that_airflow_knows(
    scene: Scene, visit: Visit, page: str, conn_id: str
) -> None:
    text = visit(everything()).get(page, params={"conn": conn_id, "digest": RUNNING}).text
    found = commands(text)
    assert len(found) >= len(buttons(text)) >= 3
    for command in found:
        assert read(command).cluster == conn_id


@pytest.mark.parametrize("without", [(), ("apply", "expand", "fill", "heal", "rebalance")])
def test_each_command_of_the_night_card_is_one_that_airflow_knows(
    scene: Scene, visit: Visit, without: tuple[str, ...]
) -> None:
    found = commands(visit(Visitor({MOVING: dags_of(MOVING, without=without)})).get("stop").text)
    disable, cancel, *pauses, enable = map(read, found)
    assert (disable.reason, cancel.all, cancel.reason) == ("stop everything", True, "stop everything")
    assert {each.cluster for each in (disable, cancel, enable)} == {MOVING}
    assert {(each.subcommand, each.yes) for each in pauses} == {("pause", True)}


@pytest.mark.parametrize("conn_id", [MOVING, "kafka(eu)#1", "it's; reboot"])
def test_the_commands_name_the_cluster_whatever_its_connection_is_called(conn_id: str) -> None:
    from kafka_steward.ui.buttons import night_commands, resume_command

    ours = [each.command for each in night_commands(conn_id, ())[:2]] + [resume_command(conn_id)]
    ours += [command for button in all_buttons(conn_id) for command in button.commands]
    assert {read(command).cluster for command in ours} == {conn_id}


def test_the_commands_do_what_their_buttons_do() -> None:
    found = {button.id: [read(command) for command in button.commands] for button in all_buttons(MOVING)}
    assert all(found.values()), "none is without a command"
    ((cancel,), (rollback,), (throttle,)) = (found[name] for name in ("cancel", "rollback", "throttle"))
    assert {each.plan for each in (cancel, rollback, throttle)} == {RUNNING[:12]}
    assert (cancel.scope, rollback.scope, throttle.rate) == ("pending", "plan", 50_000_000)
    plan, apply = found["drain"]
    assert (plan.brokers, plan.file) == ((3, 4), apply.file), "the second executes what the first wrote"
    functions = {name: [each.func.function for each in several] for name, several in found.items()}
    assert functions["dry-run"] == ["plan.plan_rebalance"]
    assert functions["drain"] == ["plan.plan_drain", "execute.apply_file"]


def test_without_its_dag_a_button_shows_a_command_that_does_not_need_it(scene: Scene, visit: Visit) -> None:
    text = visit(Visitor({QUIET: dags_of(QUIET, without=("rebalance",))})).get(f"cluster?conn={QUIET}").text
    assert buttons(text)["drain"].startswith("There is no DAG rebalance of this connection")
    cluster = f"--cluster {QUIET}"
    assert f"airflow kafka-steward plan rebalance {cluster}" in shown(text)
    drain = (
        f"plan drain --brokers IDS --file drain.json {cluster}, then airflow kafka-steward apply drain.json {cluster}"
    )
    assert f"In a terminal: airflow kafka-steward {drain}" in shown(text)
    assert "airflow dags" not in text


def test_what_a_button_sends_is_in_the_form_of_its_dag() -> None:
    dags = {dag.dag_id: dag for dag in workflow_dags().values()}
    for button in all_buttons(MOVING):
        dag_id = re.findall(r"/api/v2/dags/(.+)/dagRuns", button.url)[0]
        fields = {field.path.removeprefix("conf.") for field in button.fields}
        assert {*button.body["conf"], *fields} <= set(dags[dag_id].params), button.id


def test_the_night_card_pauses_each_workflow_that_submits_a_plan() -> None:
    from kafka_steward.operators.submit import SubmitReassignmentOperator
    from kafka_steward.ui.access import WorkflowDag
    from kafka_steward.ui.buttons import night_commands

    made = workflow_dags()
    submitting = {
        name for name, dag in made.items() if any(isinstance(task, SubmitReassignmentOperator) for task in dag.tasks)
    }
    assert {"expand", "heal", "rebalance"} <= submitting
    last = night_commands(MOVING, [WorkflowDag(name, name, paused=False) for name in made])[-1]
    assert {read(each).dag_id for each in last.command.split(" && ")} == submitting
    assert last.effect == "None of these DAGs heals, fills, rebalances or applies until it is unpaused."


def test_the_night_card_says_which_dags_it_leaves_out() -> None:
    from kafka_steward.ui.access import WorkflowDag
    from kafka_steward.ui.buttons import night_commands

    own = WorkflowDag("by_hand", None, paused=False)
    last = night_commands(MOVING, [own, WorkflowDag("heal_it", "heal", paused=False)])[-1]
    assert last.command == "airflow dags pause -y heal_it"
    assert last.effect.endswith("Of by_hand the page does not know what they do: pause those that move replicas.")
    alone = night_commands(MOVING, [own])[-1]
    assert alone.command == "airflow dags pause -y DAG_ID"
    assert alone.effect.startswith("You may see no workflow of this cluster that moves replicas;")


def test_an_approval_that_a_person_may_not_answer_is_refused_with_the_reason_and_what_to_do(
    scene: Scene, visit: Visit
) -> None:
    asked = pending(answerable=False)
    text = visit(Visitor({QUIET: dags_of(QUIET)}, approvals=[asked])).get(f"cluster?conn={QUIET}").text
    answers = {name: refusal for name, refusal in buttons(text).items() if name.startswith(("approve", "reject"))}
    refusal = "You may not answer for the DAG rebalance_it; ask one of its approvers, or a person who may."
    assert list(answers.values()) == [refusal, refusal]
    submits = [
        attributes for tag, attributes in Elements(text).found if tag == "button" and "data-refused" in attributes
    ]
    assert len(submits) == 2
    assert all("disabled" in each for each in submits)
    assert "params_input.reason" not in text, "there is nothing to fill in"


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_the_command_of_an_answer_is_the_same_call_of_airflows_api(option: str) -> None:
    (button,) = [each for each in maker(base="/air").of_approval(pending(answerable=True)) if each.label == option]
    assert button.refusal == ""
    (command,) = button.commands
    words = shlex.split(command)
    assert words[:3] == ["curl", "-X", button.method]
    assert words[-1] == f"https://AIRFLOW{button.url}"
    assert button.url.startswith("/air/api/v2/dags/rebalance_it/dagRuns/manual__1%2B02%3A00/")
    body = json.loads(words[words.index("-d") + 1])
    assert body == {**button.body, "params_input": {"reason": "..."}}
    assert body["chosen_options"] == [option]


def test_the_subject_of_an_approval_is_shown_as_it_is_and_becomes_no_markup(scene: Scene, visit: Visit) -> None:
    asked = pending(answerable=True, subject=f"Move {HOSTILE}?")
    text = visit(Visitor({QUIET: dags_of(QUIET)}, approvals=[asked])).get(f"cluster?conn={QUIET}").text
    assert "img" not in [tag for tag, _ in Elements(text).found]
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert f"Move {HOSTILE}? asked".replace("\u202e", "\\u202e").replace("\x1b", "\\x1b") in shown(text)


ROOT = Path(__file__).parents[2]
STATIC = ROOT / "provider" / "ui" / "static"
OURS = {"icon-dark.svg", "icon.svg", "page.css", "page.js"}

LOAD = """
import sys
from airflow import plugins_manager
plugins_manager.{load}()
loaded = set(sys.modules) & {{"kafka_steward.ui.app", "kafka", "kafka_steward.hooks.steward"}}
print(plugins_manager.get_import_errors(), *sorted(loaded))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("load", "imported"),
    [
        ("ensure_plugins_loaded", "{}"),
        ("get_timetables_plugins", "{}"),
        ("get_fastapi_plugins", "{} kafka kafka_steward.hooks.steward kafka_steward.ui.app"),
    ],
)
def test_only_the_api_server_builds_the_page(load: str, imported: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD.format(load=load)],
        env={"AIRFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == imported


def test_the_entry_point_is_the_plugin_and_providers_info_names_it() -> None:
    from kafka_steward.provider_info import get_provider_info
    from kafka_steward.ui.plugin import KafkaStewardPlugin

    (found,) = [each for each in entry_points(group="airflow.plugins") if each.name == "kafka_steward"]
    assert found.load() is KafkaStewardPlugin
    ((named,),) = [get_provider_info()["plugins"]]
    assert named["plugin-class"] == f"{KafkaStewardPlugin.__module__}.{KafkaStewardPlugin.__name__}"


@pytest.mark.parametrize(
    ("base_url", "href"),
    [
        (None, "/kafka-steward/"),
        ("http://localhost:8080", "/kafka-steward/"),
        ("https://example.com/airflow/", "/airflow/kafka-steward/"),
    ],
)
def test_the_view_is_below_the_path_of_airflow(
    base_url: str | None, href: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_steward.ui.plugin import KafkaStewardPlugin

    if base_url:
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    (view,) = KafkaStewardPlugin().external_views
    assert view["href"] == href
    assert view["icon"] == f"{href}static/icon.svg"


@pytest.mark.project
def test_the_files_of_others_are_those_of_the_notice() -> None:
    notice = (ROOT / "NOTICE").read_text()
    named = dict(re.findall(r"^  (\S+\.(?:js|css))\n  ([0-9a-f]{64})$", notice, re.MULTILINE))
    assert named == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in STATIC.iterdir() if path.name not in OURS
    }


@pytest.mark.project
def test_our_own_files_load_nothing_from_elsewhere() -> None:
    for name in OURS:
        text = (STATIC / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.findall(r"https?:|//[a-z]+\.|@import|url\(", text.replace("// ", "")), name
    for template in (STATIC.parent / "templates").iterdir():
        assert "//" not in template.read_text(), template.name


def test_a_page_that_cannot_be_built_does_not_keep_the_api_server_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kafka_steward.ui import plugin

    def fail() -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(plugin, "_build_app", fail)
    assert plugin.KafkaStewardPlugin().fastapi_apps == []
    assert "The page of Kafka Steward is not shown" in caplog.text


DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_links_every_picture_that_the_command_takes_and_no_other() -> None:
    linked = set(re.findall(r"\]\(pictures/([^)]+)\)", (DOCS / "page.md").read_text()))
    assert linked == set(PICTURES)
    assert {path.name for path in (DOCS / "pictures").iterdir()} == set(PICTURES)
