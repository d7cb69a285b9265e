"""A hook of mkdocs: links to files outside docs/ lead to the repository, which the site does not hold."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the page with the address of the repository in links to files outside of docs/."""
    folder = posixpath.dirname(page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[1]))
        return match[0] if target.startswith("docs/") else f"]({config.repo_url}/blob/main/{target})"

    return _LINK.sub(lead, markdown)
