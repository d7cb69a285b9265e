"""The documentation: what is made from code is current, links lead somewhere, and lists have all that they should."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mkdocs.exceptions import PluginError

from kafka_steward.cluster.connection import check_security, client_config
from kafka_steward.provider_info import get_provider_info
from tests.cli_page import page
from tests.sources import ROOT, functions_and_classes

import_module("tests.airflow_home")  # before Airflow, which looks for its home when it is imported

pytestmark = pytest.mark.project

DOCS = ROOT / "docs"
#: The pages that are read in the repository, where nothing checks their links.
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
FORM = get_provider_info()["connection-types"][0]


def test_the_page_of_the_verbs_is_the_one_that_the_code_makes() -> None:
    written = (DOCS / "reference" / "cli.md").read_text()
    assert written == page(), "python -m tests.cli_page > docs/reference/cli.md"


def test_the_reference_lists_every_module_of_operators_sensors_and_notifiers() -> None:
    text = (DOCS / "reference" / "python.md").read_text()
    listed = set(re.findall(r"^::: (kafka_steward\.\w+\.\w+)", text, re.MULTILINE))
    info = get_provider_info()
    modules = {name for part in ("operators", "sensors") for entry in info[part] for name in entry["python-modules"]}
    notifiers = {name.rpartition(".")[0] for name in info["notifications"]}
    assert {name for name in listed if not name.startswith("kafka_steward.dags")} == modules | notifiers


CONNECTIONS = re.findall(r"^export AIRFLOW_CONN_\w+='(\{.*?\})'$", (DOCS / "how-to.md").read_text(), re.M | re.S)


@pytest.mark.parametrize("connection", CONNECTIONS, ids=range(len(CONNECTIONS)))
def test_the_security_of_each_connection_of_the_recipes_is_accepted(connection: str) -> None:
    given = json.loads(connection)
    names = {"host": "bootstrap_servers", "login": "sasl_plain_username", "password": "sasl_plain_password"}
    check_security(client_config({**{names[key]: given[key] for key in names if key in given}, **given["extra"]}))
    assert set(given["extra"]) <= set(FORM["conn-fields"])


@pytest.fixture(scope="module")
def hook() -> Callable[[str], str]:
    """The hook of mkdocs, for the text of the page docs/reference/page.md."""
    spec = importlib.util.spec_from_file_location("links_to_sources", DOCS / "links_to_sources.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    where: Any = SimpleNamespace(file=SimpleNamespace(src_uri="reference/page.md"))
    return lambda text: str(module.on_page_markdown(text, page=where, config=SimpleNamespace(repo_url="https://repo")))


def test_a_link_out_of_the_site_leads_to_the_repository(hook: Callable[[str], str]) -> None:
    text = "[a](../../README.md#guarantees), [b](../../provider), [c](../workflows.md)\n[d]: ../../tests\n"
    assert hook(text) == (
        "[a](https://repo/blob/main/README.md#guarantees), [b](https://repo/blob/main/provider), "
        "[c](../workflows.md)\n[d]: https://repo/blob/main/tests\n"
    )


@pytest.mark.parametrize("target", ["../../RAEDME.md", "../../provider/gone.py#L1", "../../../elsewhere"])
def test_a_link_out_of_the_site_to_a_file_that_is_not_there_is_refused(hook: Callable[[str], str], target: str) -> None:
    with pytest.raises(PluginError, match=rf"^docs/reference/page\.md links to {re.escape(target)}, which is not"):
        hook(f"See [this]({target}).")


@pytest.mark.parametrize("name", OUTSIDE)
def test_each_link_of_a_page_outside_of_the_site_leads_to_a_file_and_a_heading(name: str) -> None:
    dead = [target for target in _targets(ROOT / name) if not _leads_somewhere(ROOT / name, target)]
    assert dead == []


def test_each_link_of_the_site_to_a_heading_outside_of_it_leads_there() -> None:
    # Whether the file is there is looked up by the hook above, and what stays within docs/ by mkdocs.
    links = [(path, target) for path in DOCS.rglob("*.md") for target in _targets(path) if _leads_out(path, target)]
    assert links
    assert [link for link in links if not _leads_somewhere(*link)] == []


def _targets(path: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```$|`[^`\n]+`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from (found for found in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"\w+:", found))


def _leads_out(path: Path, target: str) -> bool:
    return not (path.parent / target.partition("#")[0]).resolve().is_relative_to(DOCS)


def _leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    return file.exists() and (not anchor or file.suffix != ".md" or anchor in _anchors(file))


@cache
def _anchors(path: Path) -> frozenset[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each) for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles)


ARCHITECTURE = DOCS / "architecture.md"
LINKS = re.findall(r"\[`(\w+)`\]\((\S+\.py)\)", ARCHITECTURE.read_text())


def test_each_link_leads_to_what_it_names() -> None:
    assert LINKS
    found = {path: functions_and_classes((ARCHITECTURE.parent / path).resolve()) for _, path in LINKS}
    assert [(name, path) for name, path in LINKS if name not in found[path]] == []


#: An import of functions that make DAGs, by either name of the package.
_IMPORT = re.compile(r"^from (?:airflow_provider_)?kafka_steward\.dags import ", re.MULTILINE)


def dag_files() -> Iterator[tuple[str, str]]:
    """The blocks that import a function of ours which makes a DAG, by the page and the line of each."""
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = path.read_text()
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if _IMPORT.search(found[1]):
                line = text.count("\n", 0, found.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}", found[1]


DAG_FILES = dict(dag_files())


@pytest.mark.parametrize("place", DAG_FILES)
def test_airflow_finds_the_dag_file_and_its_dags(place: str, tmp_path: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.utils.file import might_contain_dag

    (file := tmp_path / "file.py").write_text(DAG_FILES[place])
    assert might_contain_dag(str(file), safe_mode=True), "import from airflow_provider_kafka_steward.dags"
    bag = DagBag(tmp_path, safe_mode=True)
    assert bag.import_errors == {}
    assert bag.dags
