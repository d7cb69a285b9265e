"""A hook of mkdocs: links to files outside docs/ lead to the repository, which the site does not hold."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_ROOT = Path(__file__).parents[1]
#: `](../target)`, and `]: ../target` at the end of a line, which defines the target of a link by its label.
_LINK = re.compile(r"(\]\(|^\[[^]]+\]: )(\.\./[^)\s]+)(\)|$)", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the page with the address of the repository in links to files outside of docs/.

    Raises PluginError for a link to a file that the repository does not have: mkdocs checks those inside of docs/ only.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if target.startswith("docs/"):
            return match[0]
        if target.startswith("../") or not (_ROOT / target.partition("#")[0]).exists():
            raise PluginError(
                f"docs/{page.file.src_uri} links to {match[2]}, which is not in the repository; correct the link."
            )
        return f"{match[1]}{config.repo_url}/blob/main/{target}{match[3]}"

    return _LINK.sub(lead, markdown)
