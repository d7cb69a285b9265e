"""Each page over a journal: what it shows, what it escapes, and whom it refuses."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.airflow_home import Connect
from tests.ui.conftest import Visit, Visitor, dags_of, everything
from tests.ui.scene import CONN_IDS, HOSTILE, Scene, digest_of

FAILED, MOVING, QUIET = CONN_IDS
RUNNING = digest_of("running")
PAGES = (
    "",
    *(f"cluster?conn={conn_id}" for conn_id in CONN_IDS),
    f"plan?conn={MOVING}&digest={RUNNING}",
    f"plan?conn={QUIET}&digest={digest_of(f'undone {QUIET}')}",
    f"health?conn={FAILED}",
    f"audit?conn={MOVING}",
    "stop",
)


class Elements(HTMLParser):
    """The elements of a page, as a browser reads them."""

    VOID = frozenset({"meta", "link", "input", "br", "wbr", "rect", "polyline"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        # `p` and `li` end with what contains them.
        while self.open and self.open[-1] != tag and self.open[-1] in {"p", "li"}:
            self.open.pop()
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, tag


def shown(text: str) -> str:
    """The text of a page, as a person reads it."""
    without = re.sub(r"<(wbr|/?(span|b|strong|small|code|time|a|br)\b)[^>]*>", "", text)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", without)).split())


def test_the_fleet_has_a_row_for_each_cluster_the_worst_first(scene: Scene, visit: Visit) -> None:
    text = visit(everything()).get("").text
    assert re.findall(r'<th scope="row"><a href="/kafka-steward/cluster\?conn=(\w+)"', text) == list(CONN_IDS)
    assert re.findall(r'<td><strong class="word (\w+)">(\w+)</strong>', text) == [
        ("warn", "waiting"),
        ("busy", "moving"),
        ("ok", "healthy"),
    ]
    assert "Broker 3 is down; its grace period ends in 12 min." in shown(text)


def test_a_cluster_shows_brokers_by_rack_and_the_countdown(scene: Scene, visit: Visit) -> None:
    text = shown(visit(everything()).get(f"cluster?conn={FAILED}").text)
    for words in ("rack a: 1 broker,", "rack b: 2 brokers", "without a rack: 1 broker,", "Heals in 12 min"):
        assert words in text
    assert "failed heals in 12 min" in text
    assert "disk failed /data/2" in text


def test_a_running_plan_shows_progress_rate_time_left_and_what_is_held(scene: Scene, visit: Visit) -> None:
    text = shown(visit(everything()).get(f"cluster?conn={MOVING}").text)
    for words in (
        "25 % of 300 partitions",
        "Rate 47.0 MB/s",
        "Time left 14 s",
        "Throttle 50.0 MB/s",
        "held 3 partitions",
    ):
        assert words in text
    for words in ("broker 5 announced a restart", "stalled 1 partition has not grown: orders-7", "cordoned"):
        assert words in text
    assert " 1 announced restart " in text
    assert " 1 partition with pending replicas " in text


def test_a_plan_without_moves_shows_no_percentage(scene: Scene, visit: Visit) -> None:
    engine = sa.create_engine(scene.url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE steward_progress SET partitions_total = 0"))
    engine.dispose()
    text = shown(visit(everything()).get(f"cluster?conn={MOVING}").text)
    assert ("Nothing to move." in text, "25 % of" in text) == (True, False)


def test_a_document_shows_its_first_partitions_with_their_replicas_and_an_unreadable_one_shows_none(
    scene: Scene, visit: Visit
) -> None:
    text = shown(visit(everything()).get(f"cluster?conn={QUIET}").text)
    assert " 1 queued plan " in text
    assert " 3 requests " in text
    assert "; first: q-0 to 2, 3 · q-1 to 2, 3 · q-2 to 2, 3; name: document_4; partitions: 4; waits: " in text
    assert "; first: r-7 to 3, 1; name: document_1; partitions: 1; waits: " in text
    unreadable = re.search(r"created: (?:(?!created: ).)*; name: document_0; partitions: 0; waits: ", text)
    assert unreadable is not None
    assert "first" not in unreadable[0]


def row_of(text: str, broker: int) -> list[str]:
    """The cells of a broker's row, as a person reads them."""
    row = text.partition(f'<th scope="row" class="n">{broker}</th>')[2].partition("</tr>")[0]
    return [shown(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]


@pytest.mark.parametrize(
    ("conn_id", "broker", "cells"),
    [
        (MOVING, 2, "live cordoned|30,034||10,002|0|428.0 GB|60 % of 1.0 TB|7.2 MB/s|14.0 MB/s|48.0 MB/s|31.0 MB/s"),
        (
            FAILED,
            1,
            "live disk failed /data/2|30,017||10,001|12|419.0 GB|60 % of 1.0 TB|7.1 MB/s|14.0 MB/s|0 B/s|0 B/s",
        ),
    ],
)
def test_a_broker_shows_its_state_replicas_leaders_bytes_disks_and_rates(
    scene: Scene, visit: Visit, conn_id: str, broker: int, cells: str
) -> None:
    page = visit(everything()).get(f"cluster?conn={conn_id}").text
    *shown, action = row_of(page, broker)
    assert shown == cells.split("|")
    assert action.startswith("Demote Plans that this broker leads nothing")
    assert "The hottest partitions of an hour: orders-0 2.0 MB/s, orders-1 1.8 MB/s," in page


@pytest.mark.parametrize(
    ("conn_id", "plan", "real"),
    [
        (MOVING, "running", "225.0 MB copied Duration at least 18 s at 50.0 MB/s Leader"),
        (QUIET, f"ended {QUIET}", "912.0 MB copied Duration at least 18 s at 50.0 MB/s, 1 h 0 min in fact Leader"),
    ],
)
def test_a_plan_shows_the_predicted_bytes_and_duration_beside_the_real_ones(
    scene: Scene, visit: Visit, conn_id: str, plan: str, real: str
) -> None:
    text = shown(visit(everything()).get(f"plan?conn={conn_id}&digest={digest_of(plan)}").text)
    assert f"Bytes moved 900.0 MB predicted, {real}" in text


def test_a_plan_shows_before_and_after_its_proof_and_its_moves_in_pages(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    first = client.get(f"plan?conn={MOVING}&digest={RUNNING}").text
    for words in ("Replicas planned 300", "Fewest possible 300, proven", "approved by bob: looks right", "waiting 225"):
        assert words in shown(first)
    assert '<rect class="fill" width="120.0" height="8"/>' in first, "the longest bar"
    seen, text = [], first
    while True:
        seen += re.findall(r'<th scope="row">(orders.*?|&lt;.*?)</th>', text)
        following = re.search(r'<a href="([^"]*)#moves">Next moves</a>', text)
        if not following:
            break
        text = client.get(html.unescape(following[1])).text
    assert len(seen) == len(set(seen)) == 300
    waiting = client.get(f"plan?conn={MOVING}&digest={RUNNING[:8]}&state=waiting").text
    assert "<td>completed</td>" not in waiting


def test_the_health_is_in_a_table_and_lines_without_scripts(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    text = client.get(f"health?conn={FAILED}").text
    assert "under replicated partitions 12 0 12" in shown(text)
    assert text.count("<polyline") >= 5
    answer = client.get(f"health.json?conn={FAILED}&days=7").json()
    assert len(answer["at_s"]) == len(answer["values"]["failed_brokers"]) > 100
    assert client.get(f"health?conn={FAILED}&days=3").status_code == 400


@pytest.mark.parametrize(
    ("search", "rows"),
    [
        ("", 200),
        ("person=ada", 100),
        ("broker=1", 200),
        ("topic=orders.00000&action=submit", 50),
        ("topic=orders.00000&partition=7", 1),
        ("partition=200", 0),
        ("plan=ffff", 0),
        # Row `number` is from the time `{number}`: the beginning is included, and the end is not.
        ("since={10}", 11),
        ("since={10}Z", 11),
        ("since={10}%2B00:00", 11),
        ("until={10}", 189),
        ("since={20}&until={10}", 10),
        ("since={20}&until={20}", 0),
        ("since={20}&until={10}&person=ada", 5),
    ],
)
def test_the_audit_trail_is_searched_paged_and_written_as_csv(
    scene: Scene, visit: Visit, search: str, rows: int
) -> None:
    client = visit(everything())
    moments = (datetime.fromtimestamp(scene.now_ms // 1000 - each, UTC) for each in range(scene.audit_rows))
    search = search.format(*(f"{each:%Y-%m-%dT%H:%M:%S}.{scene.now_ms % 1000:03}" for each in moments))
    text, seen = client.get(f"audit?conn={MOVING}&{search}").text, 0
    while True:
        seen += text.count('<th scope="row"><time')
        following = re.search(r'<a rel="next" href="([^"]*)">', text)
        if not following:
            break
        text = client.get(html.unescape(following[1])).text
    assert seen == rows
    answer = client.get(f"audit.csv?conn={MOVING}&{search}")
    assert answer.headers["content-disposition"] == 'attachment; filename="audit.csv"'
    assert len(list(csv.reader(io.StringIO(answer.text)))) == rows + 1


@pytest.mark.parametrize(
    ("search", "sentence"),
    [
        ("partition=seven", "The partition is 'seven'; it takes the number of a partition, from 0."),
        ("broker=-1", "The broker is '-1'; it takes the id of a broker"),
        ("plan=zz", "The plan is 'zz'; it takes a digest"),
        ("action=explode", "The action is 'explode'; there are"),
        ("since=yesterday", "The time since is 'yesterday'; write it like"),
        ("after=garbage", "This page of the list does not exist"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(scene: Scene, visit: Visit, search: str, sentence: str) -> None:
    answer = visit(everything()).get(f"audit?conn={MOVING}&{search}")
    assert answer.status_code == 400
    assert sentence in shown(answer.text)


def test_the_night_card_has_the_three_commands_of_each_cluster(scene: Scene, visit: Visit) -> None:
    text = visit(everything()).get(f"stop?conn={MOVING}").text
    commands = [html.unescape(each) for each in re.findall(r"<li><code>(.*?)</code>", text)]
    cluster = f"--cluster {MOVING} --reason 'stop everything'"
    assert commands[0] == f"airflow kafka-steward disable {cluster}"
    assert commands[1] == f"airflow kafka-steward cancel --all {cluster}"
    assert commands[2].split(" && ") == [
        f"airflow dags pause -y {name}_{MOVING}" for name in ("apply", "expand", "fill", "heal", "rebalance")
    ]


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_well_formed_load_nothing_from_elsewhere_and_nothing_from_outside_becomes_markup(
    scene: Scene, visit: Visit, path: str
) -> None:
    text = visit(everything()).get(path).text
    page = Elements(text)
    assert page.open == []
    names = [tag for tag, _ in page.found]
    assert "img" not in names
    assert not [
        attributes
        for _, attributes in page.found
        if "style" in attributes or any(name.startswith("on") for name in attributes)
    ]
    assert all("src" in attributes for tag, attributes in page.found if tag == "script"), "no script within the page"
    assert "style" not in names
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "{{" not in text.replace(html.escape("{{7*7}}", quote=False), "")
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    loading = ("src", "href", "hx-get", "action", "data-url")
    addresses = [attributes[name] for _, attributes in page.found for name in loading if name in attributes]
    assert addresses
    assert not [each for each in addresses if not each.startswith(("/", "#")) or each.startswith("//")]


def test_hostile_names_are_shown_as_they_are(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    visible = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    assert visible in shown(client.get(f"plan?conn={QUIET}&digest={digest_of(f'undone {QUIET}')}").text)
    assert visible in shown(client.get(f"audit?conn={MOVING}").text)
    assert visible in shown(client.get(f"cluster?conn={MOVING}").text)


def test_a_cluster_of_which_a_user_may_read_no_dag_is_not_found(scene: Scene, visit: Visit) -> None:
    client = visit(Visitor({MOVING: dags_of(MOVING)}))
    for page in ("cluster", "plan", "health", "health.json", "audit", "audit.csv", "stop"):
        answers = {
            conn_id: client.get(page, params={"conn": conn_id, "digest": digest_of(f"ended {conn_id}")})
            for conn_id in (QUIET, "missing")
        }
        assert {answer.status_code for answer in answers.values()} == {404}, page
        assert len({answer.text.replace(name, "") for name, answer in answers.items()}) == 1, "which exist is not told"
    assert QUIET not in client.get("").text


def test_a_plan_of_another_cluster_in_the_same_journal_is_not_found(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    assert client.get(f"plan?conn={QUIET}&digest={RUNNING}").status_code == 404


def test_a_journal_that_cannot_be_read_is_a_row_with_a_sentence(
    scene: Scene, visit: Visit, connect: Connect, tmp_path: Path
) -> None:
    connect("kafka_nowhere", extra={"journal": f"sqlite:///{tmp_path}/missing.db"})
    connect("kafka_bad", host="")
    broken = ("kafka_nowhere", "kafka_bad", "kafka_unknown")
    client = visit(Visitor({**everything().clusters, **{each: dags_of(each) for each in broken}}))
    text = shown(client.get("").text)
    for sentence in ("There is no Airflow connection kafka_unknown", "The connection kafka_bad names no bootstrap"):
        assert sentence in text
    assert text.count("unknown") >= 3
    answer = client.get("cluster?conn=kafka_nowhere")
    assert answer.status_code == 503
    assert "secret" not in answer.text


def buttons(text: str) -> dict[str, str]:
    """The buttons of a page, each with why it is refused; empty if it is not."""
    found = re.findall(r'<details class="action" id="action-([^"]+)">(.*?)</details>', text, re.DOTALL)
    refusals = {name: re.search(r'<p class="refusal">(.*?)</p>', body) for name, body in found}
    return {name: html.unescape(each[1]) if each else "" for name, each in refusals.items()}


def test_a_button_is_a_call_of_airflows_own_api(scene: Scene, visit: Visit) -> None:
    text = visit(everything()).get(f"cluster?conn={MOVING}").text
    assert set(buttons(text)) == {
        *("cancel", "rollback", "throttle", "dry-run", "drain", "disable", "announce"),
        *(f"demote-{broker}" for broker in range(1, 7)),
    }
    assert set(buttons(text).values()) == {""}
    forms = {
        name: {key: html.unescape(value) for key, value in re.findall(r'data-(\w+)="([^"]*)"', attributes)}
        for name, attributes in re.findall(
            r'id="action-([^"]+)">.*?<form class="request" (.*?) novalidate>', text, re.DOTALL
        )
    }
    rollback: dict[str, Any] = forms["rollback"]
    assert (rollback["method"], rollback["url"]) == ("POST", f"/api/v2/dags/cancel_{MOVING}/dagRuns")
    assert json.loads(rollback["body"]) == {"logical_date": None, "conf": {"plan": RUNNING, "scope": "plan"}}
    assert json.loads(forms["drain"]["body"])["conf"] == {"operation": "drain"}
    assert json.loads(forms["demote-2"]["body"])["conf"] == {"operation": "demote", "brokers": [2]}
    assert json.loads(forms["announce"]["body"])["conf"] == {"action": "announce_restart"}
    assert json.loads(forms["dry-run"]["body"])["conf"] == {"operation": "rebalance", "dry_run": True}


def test_what_a_person_may_not_do_is_shown_with_the_reason_and_the_command(scene: Scene, visit: Visit) -> None:
    dags = dags_of(MOVING, paused=("throttle",), without=("controls",))
    text = visit(Visitor({MOVING: dags}, may_start=False)).get(f"cluster?conn={MOVING}").text
    found = buttons(text)
    assert found["throttle"] == f"The DAG throttle_{MOVING} is paused; unpause it in Airflow first."
    assert found["disable"] == (
        "There is no DAG controls of this connection that you may see; its author adds "
        f"controls(conn_id='{MOVING}') to a DAG file."
    )
    assert found["cancel"] == f"You may not start runs of the DAG cancel_{MOVING}; ask a person who may."
    assert f"airflow kafka-steward cancel {RUNNING[:12]} --reason '...' --cluster {MOVING}" in shown(text)
    assert text.count("data-refused") == len(found)


def test_an_answer_to_an_approval_is_a_patch_of_airflows_request(scene: Scene, visit: Visit) -> None:
    from kafka_steward.ui.access import PendingApproval

    asked = PendingApproval("rebalance_it", "manual__1+02:00", "approve", -1, f"Move 3 replicas {HOSTILE}?", 0, True)
    text = visit(Visitor({QUIET: dags_of(QUIET)}, approvals=[asked])).get(f"cluster?conn={QUIET}").text
    assert "started the run" not in text
    started = replace(asked, person="grace <b>")
    text = visit(Visitor({QUIET: dags_of(QUIET)}, approvals=[started])).get(f"cluster?conn={QUIET}").text
    assert "grace &lt;b&gt; started the run." in text
    path = "/api/v2/dags/rebalance_it/dagRuns/manual__1%2B02%3A00/taskInstances/approve/-1/hitlDetails"
    assert text.count(f'data-method="PATCH" data-url="{path}"') == 2
    assert """{"chosen_options": ["Approve"], "params_input": {}}""" in html.unescape(text)


def test_an_ended_plan_can_be_rolled_back_and_no_more(scene: Scene, visit: Visit) -> None:
    text = visit(everything()).get(f"plan?conn={QUIET}&digest={digest_of(f'ended {QUIET}')}").text
    assert set(buttons(text)) == {"rollback"}
    assert "hx-trigger" not in text, "it no longer changes"


def test_the_refresh_is_a_fragment_that_is_not_sent_twice(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    whole = client.get(f"plan?conn={MOVING}&digest={RUNNING}")
    address = html.unescape(re.findall(r'hx-get="([^"]+)"', whole.text)[0])
    part = client.get(address)
    assert "<html" not in part.text
    assert part.text.strip() in whole.text
    again = client.get(address, headers={"If-None-Match": part.headers["etag"]})
    assert (again.status_code, again.text) == (304, "")
    other = client.get(address, headers={"If-None-Match": 'W/"something"'})
    assert other.status_code == 200


def live_part(text: str) -> dict[str, str]:
    """The attributes of the element that refreshes the page."""
    (found,) = [attributes for _, attributes in Elements(text).found if attributes.get("id") == "live"]
    return found


@pytest.mark.parametrize(
    ("path", "replaced", "kept"),
    [
        ("", "", ()),
        (f"cluster?conn={MOVING}", "", ()),
        (f"plan?conn={MOVING}&digest={RUNNING}", "", ()),
        (f"health?conn={FAILED}&days=7", "measures", ('id="charts"',)),
        (f"audit?conn={MOVING}", "rows", ("<form", "<input", "</form>")),
    ],
)
def test_what_is_shown_refreshes_itself_and_replaces_no_search_form_and_no_chart(
    scene: Scene, visit: Visit, path: str, replaced: str, kept: tuple[str, ...]
) -> None:
    client = visit(everything())
    whole = client.get(path).text
    live = live_part(whole)
    assert live["hx-trigger"] == "every 5s"
    part = client.get(live["hx-get"]).text
    assert part.strip() in whole
    given = {"hx-swap": "outerHTML", "hx-select": f"#{replaced}", "hx-target": f"#{replaced}"}
    wanted = given if replaced else {"hx-swap": "innerHTML"}
    assert {name: live[name] for name in live if name in given} == wanted
    before, _, within = part.partition(f'<div id="{replaced}">')
    assert not replaced or "<tbody>" in within
    assert [each for each in kept if each not in before or each in within] == []


@pytest.mark.parametrize("more", ["person=ada", "topic=orders.00000", "since=2026-11-25T08:00", "after"])
def test_a_search_and_older_rows_do_not_refresh_themselves(scene: Scene, visit: Visit, more: str) -> None:
    client = visit(everything())
    path = f"audit?conn={MOVING}&{more}"
    if more == "after":
        older = re.search(r'<a rel="next" href="([^"]*)">', client.get(f"audit?conn={MOVING}").text)
        assert older is not None
        path = html.unescape(older[1])
    assert "hx-get" not in live_part(client.get(path).text)


def test_all_answers_carry_the_security_headers(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    for path in (*PAGES, "static/page.css", "cluster?conn=missing", "audit.csv?conn=" + MOVING, "nothing/here"):
        answer = client.get(path)
        policy = dict(each.split(" ", 1) for each in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["script-src"] == "'self'"
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "private" in answer.headers["cache-control"]


def test_no_route_takes_anything_but_get(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert client.request(method, f"cluster?conn={MOVING}").status_code == 405


def test_below_a_path_every_address_begins_with_it(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    text = client.get(f"cluster?conn={MOVING}").text
    client.app.root_path = "/airflow"  # type: ignore[attr-defined]
    below = client.get(f"http://testserver/airflow/kafka-steward/cluster?conn={MOVING}").text
    moved = re.sub(r'((?:href|src|hx-get|data-url|data-follow)=")/', r"\1/airflow/", text)
    assert below.replace("Updated", "") == moved.replace("Updated", "")


def test_the_bytes_of_a_first_visit_are_few(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    text = client.get(f"health?conn={MOVING}").text
    loaded = [html.unescape(each) for each in re.findall(r'(?:src|href)="(/kafka-steward/static/[^"]+)"', text)]
    assert len(loaded) == 6
    assert len(text) + sum(len(client.get(each).content) for each in loaded) < 200_000


PLAN = f"plan?conn={MOVING}&digest={digest_of('running')}"
#: The tables that grow with time, or with the size of a plan.
GROWING = ("steward_audit", "steward_health", "steward_plan", "steward_plan_move")


@contextmanager
def sent() -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent to any database within the block, with their parameters."""
    statements: list[tuple[str, Any]] = []

    def keep(*given: Any) -> None:
        statements.append((given[2], given[3]))

    sa.event.listen(sa.Engine, "before_cursor_execute", keep)
    try:
        yield statements
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", keep)


def steps(scene: Scene, statements: list[tuple[str, Any]]) -> list[str]:
    """How SQLite executes those of the statements that read our tables, step by step."""
    ours = [(text, given) for text, given in statements if "steward_" in text and text.startswith("SELECT")]
    assert ours
    engine = sa.create_engine(scene.url)
    with engine.connect() as connection:
        found = [
            row[3]
            for text, given in ours
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", given).all()
        ]
    engine.dispose()
    return found


@pytest.mark.parametrize("path", ["", f"cluster?conn={MOVING}", PLAN, f"{PLAN}&state=dropped", f"audit?conn={MOVING}"])
def test_no_statement_of_a_page_reads_all_of_a_table_that_grows(scene: Scene, visit: Visit, path: str) -> None:
    client = visit(everything())
    with sent() as statements:
        assert client.get(path).status_code == 200
    read = [step for step in steps(scene, statements) if re.match(rf"SCAN ({'|'.join(GROWING)})\b", step)]
    assert read == []


def test_the_moves_of_a_plan_are_counted_and_listed_by_state_from_an_index_alone(scene: Scene, visit: Visit) -> None:
    client = visit(everything())
    with sent() as statements:
        client.get(f"{PLAN}&state=dropped")
    about = [step for step in steps(scene, statements) if "steward_plan_move" in step]
    index = "INDEX steward_plan_move_state (cluster_id=? AND plan=?"
    assert [step for step in about if index not in step] == []
    assert [step.partition(" USING ")[2] for step in about] == [f"COVERING {index})", f"{index} AND state=?)"]
