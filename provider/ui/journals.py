"""The journals of the connections, opened for reading and kept open between requests."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from airflow.sdk.exceptions import AirflowException

from kafka_steward.errors import JournalError, SettingError, StewardError
from kafka_steward.hooks.steward import StewardHook
from kafka_steward.page_data.clusters import ClusterSummary, cluster, fleet
from kafka_steward.page_data.reader import JournalReader, open_reader

#: Seconds for which a connection's journal, or its failure, is remembered: each refresh of each page asks for it.
_CONNECTION_S, _FAILURE_S = 30.0, 5.0
#: The largest number of databases that are kept open.
_DATABASES = 32


@dataclass(frozen=True)
class JournalPlace:
    """The journal of a connection and its cluster; None if no process has connected to the cluster yet."""

    conn_id: str
    url: str
    cluster_id: str | None


@dataclass(frozen=True)
class FleetRow:
    """One connection with its cluster, or with the sentence why its journal cannot be read."""

    conn_id: str
    cluster: ClusterSummary | None = None
    problem: str = ""


class Journals:
    """The journals behind connections. Thread-safe. `clock` returns seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: OrderedDict[str, JournalReader] = OrderedDict()
        self._places: dict[str, tuple[float, JournalPlace | StewardError]] = {}

    def open(self, conn_id: str) -> tuple[JournalReader, ClusterSummary]:
        """Return the open journal of a connection, and its cluster. Raises StewardError, with one sentence."""
        place = self._known(conn_id)
        if isinstance(place, StewardError):
            raise place
        with self._reading(place.url) as reader:
            summary = None if place.cluster_id is None else cluster(reader, place.cluster_id)
            return reader, summary or _find_reported(fleet(reader), conn_id)

    def fleet(self, conn_ids: Iterable[str]) -> list[FleetRow]:
        """Return a row for each connection; each journal is read once."""
        rows: list[FleetRow] = []
        by_url: dict[str, list[JournalPlace]] = {}
        for conn_id in conn_ids:
            place = self._known(conn_id)
            if isinstance(place, StewardError):
                rows.append(FleetRow(conn_id, problem=str(place)))
            else:
                by_url.setdefault(place.url, []).append(place)
        for url, places in by_url.items():
            rows += self._read_rows(url, places)
        return rows

    def close(self) -> None:
        """Close all databases."""
        with self._lock:
            readers, self._readers = list(self._readers.values()), OrderedDict()
            self._places.clear()
        for reader in readers:
            reader.close()

    def _read_rows(self, url: str, places: Iterable[JournalPlace]) -> list[FleetRow]:
        try:
            with self._reading(url) as reader:
                summaries = fleet(reader)
        except StewardError as error:
            return [FleetRow(place.conn_id, problem=str(error)) for place in places]
        by_id = {summary.cluster_id: summary for summary in summaries}
        return [_row(place, by_id, summaries) for place in places]

    def _known(self, conn_id: str) -> JournalPlace | StewardError:
        until_s, known = self._places.get(conn_id, (0.0, None))
        if known is None or self._clock() >= until_s:
            known = self._look_up(conn_id)
            kept_s = _FAILURE_S if isinstance(known, StewardError) else _CONNECTION_S
            self._places[conn_id] = (self._clock() + kept_s, known)
        return known

    def _look_up(self, conn_id: str) -> JournalPlace | StewardError:
        hook = StewardHook(conn_id)
        try:
            url = hook.journal_url
            with self._reading(url) as reader:
                return JournalPlace(conn_id, url, hook.stored_cluster_id(reader))
        except StewardError as error:
            return error
        except AirflowException as error:  # such as a secrets backend that does not answer
            return SettingError(f"The connection {conn_id} cannot be read: {error}")

    def _reader(self, url: str) -> JournalReader:
        with self._lock:
            if url in self._readers:
                self._readers.move_to_end(url)
                return self._readers[url]
        opened = open_reader(url)
        with self._lock:
            kept = self._readers.setdefault(url, opened)
            surplus = [self._readers.popitem(last=False)[1] for _ in range(len(self._readers) - _DATABASES)]
        for reader in [*surplus, *([opened] if kept is not opened else [])]:
            reader.close()
        return kept

    @contextmanager
    def _reading(self, url: str) -> Iterator[JournalReader]:
        """Yield the open journal at `url`; close it after a failure: its tables may have been upgraded meanwhile."""
        reader = self._reader(url)
        try:
            yield reader
        except JournalError:
            with self._lock:
                failed = self._readers.pop(url, None)
            if failed is not None:
                failed.close()
            raise


def _row(place: JournalPlace, by_id: Mapping[str, ClusterSummary], summaries: Iterable[ClusterSummary]) -> FleetRow:
    summary = by_id.get(place.cluster_id or "")
    try:
        return FleetRow(place.conn_id, summary or _find_reported(summaries, place.conn_id))
    except StewardError as error:
        return FleetRow(place.conn_id, problem=str(error))


def _find_reported(summaries: Iterable[ClusterSummary], conn_id: str) -> ClusterSummary:
    """Return the one cluster that the watches of a connection report."""
    reported = [summary for summary in summaries if conn_id in summary.conn_ids]
    if len(reported) != 1:
        raise JournalError(
            f"The journal knows no cluster of the connection {conn_id} yet; unpause its DAG heal, whose watch reports "
            "it within a minute."
        )
    return reported[0]
