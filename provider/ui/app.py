"""The page as a FastAPI app: its routes read, and change nothing.

Each asks Airflow whether the user may see the cluster.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafka_steward.errors import RequestError, StewardError
from kafka_steward.escaping import printable
from kafka_steward.journal.records import MoveState
from kafka_steward.page_data import audit as audit_data
from kafka_steward.page_data import plans as plan_data
from kafka_steward.page_data import reports
from kafka_steward.page_data.clusters import ClusterState, ClusterSummary
from kafka_steward.page_data.reader import JournalReader
from kafka_steward.ui.access import AirflowAccess, UserDep, WorkflowDag
from kafka_steward.ui.audit_search import AuditSearch, read_search
from kafka_steward.ui.buttons import ButtonMaker, night_commands, resume_command
from kafka_steward.ui.journals import Journals
from kafka_steward.ui.template_engine import PageUrls, render, static_files

_DAY_MS = 86_400_000
#: The spans of the health charts, in days.
SPANS = (1, 7, 30)
_MOVES_PER_PAGE, _PLANS_PER_PAGE = 50, 10

#: The headers of every answer: no script, style, frame or connection but the page's own; only Airflow's own pages may
#: frame it.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Adds `HEADERS` to every answer; what users see is never stored by a shared cache."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "private, no-cache")
            await send(message)

        await self._app(scope, receive, send_with_headers)


def get_access(user: UserDep) -> AirflowAccess:
    """Return what the user may see; 401 for somebody without a session."""
    return AirflowAccess(user)


AccessDep = Annotated[AirflowAccess, Depends(get_access)]


@dataclass(frozen=True)
class OpenCluster:
    """One cluster that the user may see, with its DAGs and its open journal."""

    request: Request
    access: AirflowAccess
    conn_id: str
    dags: tuple[WorkflowDag, ...]
    reader: JournalReader
    summary: ClusterSummary

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster."""
        return self.summary.cluster_id

    def buttons(self) -> ButtonMaker:
        """Return the maker of the buttons for this user."""
        base = PageUrls(self.request).airflow
        return ButtonMaker(self.conn_id, base, self.dags, self.access.may_trigger)

    def render(self, template: str, **values: Any) -> Response:
        """Return a page of this cluster."""
        shared = {"conn": self.conn_id, "cluster": self.summary, "user": self.access.name}
        return render(self.request, template, **{**shared, **values})


def open_cluster(request: Request, access: AccessDep, conn: str) -> OpenCluster:
    """Return the cluster behind the connection `conn`; 404 unless the user may see it."""
    dags = access.dags_of(conn)
    if not dags:
        # The same answer for a cluster that does not exist, so that nobody learns which ones do.
        raise HTTPException(404, f"There is no cluster behind a connection {conn} that you may see.")
    journals: Journals = request.app.state.journals
    reader, summary = journals.open(conn)
    return OpenCluster(request, access, conn, dags, reader, summary)


ClusterDep = Annotated[OpenCluster, Depends(open_cluster)]
SearchDep = Annotated[AuditSearch, Depends(read_search)]


def show_fleet(request: Request, access: AccessDep) -> Response:
    """Show a row for each cluster."""
    visible, order = access.visible_clusters(), list(ClusterState)
    rows = sorted(  # first those that cannot be read, then in the order of their states
        request.app.state.journals.fleet(visible.dags),
        key=lambda row: (1 + order.index(row.cluster.state) if row.cluster else 0, row.conn_id),
    )
    return render(request, "fleet.html", rows=rows, without_dag=visible.without_dag, user=access.name, conn=None)


def show_cluster(opened: ClusterDep, after: str | None = None) -> Response:
    """Show brokers, plans, documents and buttons of one cluster."""
    maker, reader, cluster_id = opened.buttons(), opened.reader, opened.cluster_id
    running = opened.summary.running
    progress = None if running is None else plan_data.progress(reader, cluster_id, running.plan.digest)
    pending = opened.access.pending_approvals(opened.dags)
    brokers = reports.brokers(reader, cluster_id)
    return opened.render(
        "cluster.html",
        brokers=brokers,
        broker_buttons=maker.of_brokers(brokers),
        documents=reports.documents(reader, cluster_id),
        plans=plan_data.plans(reader, cluster_id, after=after, limit=_PLANS_PER_PAGE),
        running=running,
        progress=progress,
        approvals=[(approval, maker.of_approval(approval)) for approval in pending],
        plan_buttons=maker.of_plan(running.plan.digest) if running else [],
        buttons=maker.of_cluster(opened.summary),
        next_page=after,
    )


def show_plan(opened: ClusterDep, digest: str, state: str = "", after: str | None = None) -> Response:
    """Show one plan: before and after, proof, progress, and a page of its moves."""
    detail = plan_data.plan(opened.reader, opened.cluster_id, digest)
    if detail is None:
        raise HTTPException(
            404,
            f"The journal has no plan {digest[:64]} of this cluster, or several that begin so. A plan is shown here "
            "once it is submitted; until then, the log of the task that planned shows it, and the approval does.",
        )
    states = [known for known in MoveState if known.value == state]
    if state and not states:
        raise HTTPException(400, f"There is no state {state[:40]!r} of a move.")
    moves = plan_data.moves(
        opened.reader, opened.cluster_id, detail.plan.digest, states=states, after=after, limit=_MOVES_PER_PAGE
    )
    maker, status = opened.buttons(), detail.plan.status
    buttons = [] if status is None else maker.of_plan(detail.plan.digest)
    if status is not None and status.finished:
        buttons = [] if detail.plan.rolled_back_by else maker.of_ended_plan(detail.plan.digest)
    return opened.render("plan.html", detail=detail, moves=moves, state=state, after=after, buttons=buttons)


def show_health(opened: ClusterDep, days: int = 1) -> Response:
    """Show the health over time, as lines and as a table."""
    return opened.render("health.html", series=_health(opened, days), days=days, spans=SPANS)


def send_health(opened: ClusterDep, days: int = 1) -> Response:
    """Send the health over time, for the charts."""
    series = _health(opened, days)
    return JSONResponse({"at_s": [at // 1000 for at in series.at_ms], "values": {**series.values}})


def show_audit(opened: ClusterDep, search: SearchDep, after: str | None = None) -> Response:
    """Show a page of the audit trail."""
    page = audit_data.audit(opened.reader, opened.cluster_id, search.chosen(), after=after)
    return opened.render("audit.html", page=page, search=search, after=after)


def send_audit(opened: ClusterDep, search: SearchDep) -> Response:
    """Send all rows of the audit trail that meet the search, as CSV."""
    rows = audit_data.audit_csv(opened.reader, opened.cluster_id, search.chosen())
    headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
    return StreamingResponse(_csv_lines(rows), media_type="text/csv; charset=utf-8", headers=headers)


def show_stop(request: Request, access: AccessDep, conn: str = "") -> Response:
    """Show the three commands that stop everything: they are typed in a terminal, and need no page."""
    visible = access.visible_clusters().dags
    if conn and conn not in visible:
        raise HTTPException(404, f"There is no cluster behind a connection {conn} that you may see.")
    shown = {conn_id: dags for conn_id, dags in visible.items() if conn in ("", conn_id)}
    cards = [(conn_id, night_commands(conn_id, dags), resume_command(conn_id)) for conn_id, dags in shown.items()]
    return render(request, "stop.html", cards=cards, user=access.name, conn=conn or None)


def send_static(request: Request, name: str, access: AccessDep, v: str = "") -> Response:  # noqa: ARG001 - asked for
    """Send a script, style or picture of the page."""
    file = static_files().get(name)
    if file is None:
        raise HTTPException(404, "There is no such file.")
    # Its URL changes with its content.
    kept = "private, max-age=31536000, immutable" if v else "private, max-age=3600"
    return Response(file[0], media_type=file[1], headers={"Cache-Control": kept})


ROUTES: dict[str, Callable[..., Response]] = {
    "/": show_fleet,
    "/cluster": show_cluster,
    "/plan": show_plan,
    "/health": show_health,
    "/health.json": send_health,
    "/audit": show_audit,
    "/audit.csv": send_audit,
    "/stop": show_stop,
    "/static/{name}": send_static,
}


def create_app(journals: Journals | None = None) -> FastAPI:
    """Return the app. It opens nothing before the first request."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.journals.close()

    app = FastAPI(title="Kafka Steward", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.state.journals = journals or Journals()
    for path, route in ROUTES.items():
        app.get(path)(route)
    app.add_middleware(SecurityHeaders)
    app.exception_handler(StarletteHTTPException)(_show_refusal)
    app.exception_handler(RequestValidationError)(_show_invalid)
    app.exception_handler(StewardError)(_show_error)
    return app


def _health(opened: OpenCluster, days: int) -> reports.HealthSeries:
    if days not in SPANS:
        raise HTTPException(400, f"The health is shown for {', '.join(map(str, SPANS))} days.")
    since_ms = opened.summary.now_ms - days * _DAY_MS
    return reports.health_series(opened.reader, opened.cluster_id, since_ms=since_ms, points=300)


def _csv_lines(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in rows:
        line = io.StringIO()
        csv.writer(line).writerow(row)
        yield line.getvalue()


async def _show_refusal(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    sentence = str(getattr(error, "detail", "")) or HTTPStatus(status).phrase
    return _show_message(request, status, sentence)


async def _show_invalid(request: Request, error: Exception) -> Response:
    errors = error.errors() if isinstance(error, RequestValidationError) else []
    names = ", ".join(sorted({str(parameter["loc"][-1]) for parameter in errors}))
    return _show_message(request, 400, f"The address of this page lacks or misspells: {printable(names)}.")


async def _show_error(request: Request, error: Exception) -> Response:
    return _show_message(request, 400 if isinstance(error, RequestError) else 503, str(error))


def _show_message(request: Request, status: int, sentence: str) -> Response:
    title = HTTPStatus(status).phrase
    # Without a session there is no script, without which a link leaves no frame.
    framed = request.headers.get("sec-fetch-dest") == "iframe"
    return render(request, "message.html", status, title=title, sentence=sentence, framed=framed, conn=None)
