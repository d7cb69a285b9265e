"""The modules of the package as syntax trees, each parsed once per process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "functions_and_classes", "nodes", "parsed"]

ROOT = Path(__file__).parent.parent


@cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a module, which is not to be changed."""
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module."""
    return tuple(ast.walk(parsed(path)))


@cache
def functions_and_classes(path: Path) -> frozenset[str]:
    """Return the names of all functions, methods and classes of a module."""
    return frozenset(
        node.name for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    )
