"""The buttons of the page: each a call of Airflow's REST API that the browser makes for its user. Pure.

The page changes nothing itself: rights, protection against forged requests, audit and the user's name are Airflow's.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from kafka_steward.commands import command_line
from kafka_steward.page_data.clusters import ClusterSummary
from kafka_steward.page_data.reports import Brokers
from kafka_steward.ui.access import PendingApproval, WorkflowDag


@dataclass(frozen=True)
class Field:
    """An input of a button. `path` is where its value goes in the body; `kind` is text, whole, megabytes or ids."""

    label: str
    path: str
    kind: str = "text"
    required: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Button:
    """A request that a user may send. `refusal` says why this user cannot; `commands` do the same in a terminal.

    What is in capitals in a command has to be replaced. `follow` is the page of Airflow where the run is seen; it ends
    with a slash, and the id of the run is appended.
    """

    id: str
    label: str
    explanation: str
    method: str
    url: str
    body: Mapping[str, Any]
    fields: tuple[Field, ...] = ()
    refusal: str = ""
    commands: tuple[str, ...] = ()
    follow: str = ""
    danger: bool = False

    @property
    def body_json(self) -> str:
        """The body without the values of the fields."""
        return json.dumps(self.body)


_REASON = Field("Reason", "conf.reason", required=True, hint="for the audit trail")


@dataclass(frozen=True)
class Offer:
    """A run of the DAG of `workflow` that a button starts. `verbs` do the same in a terminal, one after the other."""

    id: str
    workflow: str
    label: str
    explanation: str
    fields: tuple[Field, ...]
    verbs: tuple[str, ...]
    danger: bool = False


CANCEL = Offer(
    "cancel",
    "cancel",
    "Cancel",
    "Stops the plan: moves in flight return to their original replicas, completed moves stay.",
    (_REASON,),
    ("cancel {plan} --reason '...'",),
    danger=True,
)
ROLL_BACK = Offer(
    "rollback",
    "cancel",
    "Roll back",
    "Stops the plan and reverts its completed moves too: replicas are copied again.",
    (_REASON,),
    ("cancel {plan} --scope plan --reason '...'",),
    danger=True,
)
THROTTLE = Offer(
    "throttle",
    "throttle",
    "Change the throttle",
    "The plan's next step sets the rate on every broker that it copies to; 0 is no throttle.",
    (Field("MB/s into one broker", "conf.rate", "megabytes", required=True), _REASON),
    ("throttle {plan} RATE --reason '...'",),
)
DRY_RUN = Offer(
    "dry-run",
    "rebalance",
    "Dry run",
    "Plans a rebalance and shows it in Airflow; nothing is submitted.",
    (),
    ("plan rebalance",),
)
DRAIN = Offer(
    "drain",
    "rebalance",
    "Drain brokers",
    "Plans to move all replicas off these brokers; the plan is executed once it is approved.",
    (Field("Broker ids", "conf.brokers", "ids", required=True, hint="such as 3, 4"),),
    # The first prints the plan and writes the file: whoever types the second one approves it.
    ("plan drain --brokers IDS --file drain.json", "apply drain.json"),
    danger=True,
)
DEMOTE = Offer(
    "demote",
    "rebalance",
    "Demote",
    "Plans that this broker leads nothing until it is promoted; nothing is copied.",
    (),
    # It shows the plan: only a run of the DAG writes down that the broker is demoted.
    ("plan demote --brokers {broker}",),
)
PROMOTE = Offer(
    "promote",
    "rebalance",
    "Promote",
    "Plans that this broker leads again, in the order from before its demotion.",
    (),
    ("plan promote --brokers {broker}",),
)
DISABLE = Offer(
    "disable",
    "controls",
    "Disable reassignments",
    "No move starts until they are enabled again; moves in flight complete (KIP-236).",
    (_REASON,),
    ("disable --reason '...'",),
    danger=True,
)
ENABLE = Offer(
    "enable",
    "controls",
    "Enable reassignments",
    "Moves may start again.",
    (Field("Reason", "conf.reason", hint="for the audit trail"),),
    ("enable",),
)
ANNOUNCE = Offer(
    "announce",
    "controls",
    "Announce a restart",
    "The broker has this long to come back, and receives no replica meanwhile (KIP-46).",
    (
        Field("Broker id", "conf.broker", "whole", required=True),
        Field("Minutes", "conf.minutes", "whole", hint="empty: its grace period"),
    ),
    ("bounce BROKER --for 20m",),
)


@dataclass(frozen=True)
class ButtonMaker:
    """Makes the buttons of one cluster. `base` is the path of Airflow; `may_trigger` asks its auth manager."""

    conn_id: str
    base: str
    dags: Sequence[WorkflowDag]
    may_trigger: Callable[[WorkflowDag], bool]

    def of_plan(self, digest: str) -> list[Button]:
        """Return the buttons of an unfinished plan."""
        return [
            self._run(CANCEL, {"plan": digest, "scope": "pending"}),
            self._run(ROLL_BACK, {"plan": digest, "scope": "plan"}),
            self._run(THROTTLE, {"plan": digest}),
        ]

    def of_ended_plan(self, digest: str) -> list[Button]:
        """Return the buttons of a plan that has ended."""
        return [self._run(ROLL_BACK, {"plan": digest, "scope": "plan"})]

    def of_cluster(self, cluster: ClusterSummary) -> list[Button]:
        """Return the buttons of the cluster itself."""
        disabled = cluster.switch is not None
        return [
            self._run(DRY_RUN, {"operation": "rebalance", "dry_run": True}),
            self._run(DRAIN, {"operation": "drain"}),
            self._run(ENABLE, {"action": "enable"}) if disabled else self._run(DISABLE, {"action": "disable"}),
            self._run(ANNOUNCE, {"action": "announce_restart"}),
        ]

    def of_brokers(self, brokers: Brokers) -> dict[int, Button]:
        """Return the button of each live broker, by its id: it is demoted, or promoted where it is demoted."""
        live = [report.broker for report in brokers.rows if report.live]
        # The rights of the user are asked for once, not for each broker.
        dag, refusal = self._usable_dag(DEMOTE.workflow)
        offers = {broker: PROMOTE if broker in brokers.demoted else DEMOTE for broker in live}
        return {
            broker: self._button(offer, {"operation": offer.id, "brokers": [broker]}, dag, refusal)
            for broker, offer in offers.items()
        }

    def of_approval(self, pending: PendingApproval) -> list[Button]:
        """Return the two answers to a plan that waits for approval."""
        return [self._answer(pending, "Approve"), self._answer(pending, "Reject")]

    def _run(self, offer: Offer, conf: Mapping[str, Any]) -> Button:
        return self._button(offer, conf, *self._usable_dag(offer.workflow))

    def _button(self, offer: Offer, conf: Mapping[str, Any], dag: WorkflowDag | None, refusal: str) -> Button:
        dag_id = dag.dag_id if dag else offer.workflow
        path, plan = quote(dag_id, safe=""), str(conf.get("plan", ""))[:12]
        broker = "".join(map(str, conf.get("brokers", ())))
        return Button(
            id=f"{offer.id}-{broker}" if broker else offer.id,
            label=offer.label,
            explanation=offer.explanation,
            method="POST",
            url=f"{self.base}/api/v2/dags/{path}/dagRuns",
            body={"logical_date": None, "conf": dict(conf)},
            fields=offer.fields,
            refusal=refusal,
            # They need neither the page nor the DAG.
            commands=tuple(command_line(verb.format(plan=plan, broker=broker), self.conn_id) for verb in offer.verbs),
            follow=f"{self.base}/dags/{path}/runs/",
            danger=offer.danger,
        )

    def _usable_dag(self, workflow: str) -> tuple[WorkflowDag | None, str]:
        """Return the DAG of a workflow, one that this user may run if there is one, and why it cannot be run."""
        known = [dag for dag in self.dags if dag.workflow == workflow]
        if not known:
            return None, (
                f"There is no DAG {workflow} of this connection that you may see; its author adds "
                f"{workflow}(conn_id={self.conn_id!r}) to a DAG file."
            )
        ready = [dag for dag in known if not dag.paused]
        if not ready:
            return known[0], f"The DAG {known[0].dag_id} is paused; unpause it in Airflow first."
        allowed = [dag for dag in ready if self.may_trigger(dag)]
        if not allowed:
            return ready[0], f"You may not start runs of the DAG {ready[0].dag_id}; ask a person who may."
        return allowed[0], ""

    def _answer(self, pending: PendingApproval, option: str) -> Button:
        dag, run, task = (quote(text, safe="") for text in (pending.dag_id, pending.run_id, pending.task_id))
        number = sha256(f"{pending.dag_id} {pending.run_id}".encode()).hexdigest()[:8]
        url = f"{self.base}/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/{task}/{pending.map_index}/hitlDetails"
        refusal = f"You may not answer for the DAG {pending.dag_id}; ask one of its approvers, or a person who may."
        return Button(
            id=f"{option.lower()}-{number}",
            label=option,
            explanation=f"{option}s exactly this plan. Your name and the reason are written to the audit trail.",
            method="PATCH",
            url=url,
            body={"chosen_options": [option], "params_input": {}},
            fields=(Field("Reason", "params_input.reason", hint="for the audit trail"),),
            refusal="" if pending.answerable else refusal,
            commands=(_answer_command(url, option),),
            danger=option == "Approve",
        )


def _answer_command(url: str, option: str) -> str:
    """Return the call of Airflow's REST API that answers: no command of Airflow does."""
    headers = "-H 'Authorization: Bearer TOKEN' -H 'Content-Type: application/json'"
    body = json.dumps({"chosen_options": [option], "params_input": {"reason": "..."}})
    return f"curl -X PATCH {headers} -d {shlex.quote(body)} {shlex.quote(f'https://AIRFLOW{url}')}"


#: The workflows whose runs move replicas by themselves, or once they are approved; `expand` is a rebalance on a join.
_MOVING = frozenset({"apply", "expand", "fill", "heal", "rebalance"})


@dataclass(frozen=True)
class NightCommand:
    """One of the three commands that stop everything, and what it does."""

    command: str
    effect: str


def night_commands(conn_id: str, dags: Sequence[WorkflowDag]) -> list[NightCommand]:
    """Return the commands that stop everything on one cluster, in the order in which to type them."""
    reason = "--reason 'stop everything'"
    return [
        NightCommand(
            f"{command_line('disable', conn_id)} {reason}",
            "No new move starts, whoever asks for it.",
        ),
        NightCommand(
            f"{command_line('cancel --all', conn_id)} {reason}",
            "Moves in flight return to their original replicas, and the plans' throttles are removed.",
        ),
        _pause_command(dags),
    ]


def resume_command(conn_id: str) -> str:
    """Return the command after which moves may start again."""
    return command_line("enable", conn_id)


def _pause_command(dags: Sequence[WorkflowDag]) -> NightCommand:
    """Return the command that pauses the DAGs of workflows; what other DAGs do is not known."""
    moving = [dag.dag_id for dag in dags if dag.workflow in _MOVING]
    unknown = [dag.dag_id for dag in dags if dag.workflow is None]
    effects = [
        "None of these DAGs heals, fills, rebalances or applies until it is unpaused."
        if moving
        else "You may see no workflow of this cluster that moves replicas; if there is one, put its id for DAG_ID."
    ]
    if unknown:
        effects.append(f"Of {', '.join(unknown)} the page does not know what they do: pause those that move replicas.")
    pause = " && ".join(f"airflow dags pause -y {shlex.quote(dag_id)}" for dag_id in moving)
    return NightCommand(pause or "airflow dags pause -y DAG_ID", " ".join(effects))
