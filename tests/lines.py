"""`python -m tests.lines`: the lines of the product by package, and whether each is within its budget.

The budgets are in `pyproject.toml`. A package may have 2 % more lines than its budget; a commit that needs
more raises the budget, and says what users get for it. A budget that is far above what is needed is too high.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_OVER, _UNDER = 1.02, 0.9
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Size(NamedTuple):
    """The number of modules, of their lines, and of those lines that are code: no comment, no docstring, not empty."""

    modules: int = 0
    lines: int = 0
    code: int = 0

    def plus(self, text: str) -> Size:
        """Return the size with one module more."""
        return Size(self.modules + 1, self.lines + len(text.splitlines()), self.code + count_code(text))


def count_code(text: str) -> int:
    """Return the number of lines with code of a module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def package_of(module: Path) -> str:
    """Return the package of a module: a folder at the top, or one of `provider`; `provider` itself has the rest."""
    parts = module.relative_to(ROOT).parts
    return "/".join(parts[:2]) if parts[0] == "provider" and len(parts) > 2 else parts[0]


def measure() -> dict[str, Size]:
    """Return the size of each package, in the order of their names."""
    sizes: dict[str, Size] = {}
    for top in ("dags", "operators", "provider", "sensors"):
        for module in sorted((ROOT / top).rglob("*.py")):
            name = package_of(module)
            sizes[name] = sizes.get(name, Size()).plus(module.read_text())
    return sizes


def read_budgets() -> dict[str, int]:
    """Return the budget of each package, in lines."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return dict(settings["tool"]["kafka-steward"]["lines"])


def find_faults(lines: Mapping[str, int], budgets: Mapping[str, int]) -> list[str]:
    """Return a sentence for each package whose budget is missing, exceeded, or too high, and for each unused budget."""
    faults = [f"{name} has no budget of lines in pyproject.toml." for name in lines if name not in budgets]
    faults += [
        f"{name} has a budget of lines in pyproject.toml, and no module." for name in budgets if name not in lines
    ]
    for name, budget in budgets.items():
        if lines.get(name, 0) > budget * _OVER:
            faults.append(f"{name} has {lines[name]} lines, and a budget of {budget}: shorten it, or raise the budget.")
        if 0 < lines.get(name, 0) < budget * _UNDER:
            faults.append(f"{name} has only {lines[name]} lines, and a budget of {budget}: lower the budget.")
    return faults


def main() -> None:
    """Print the sizes, and exit with 1 if a budget does not fit."""
    sizes, budgets = measure(), read_budgets()
    for name, size in sizes.items():
        print(f"{name:24}{size.modules:5}{size.lines:8}{size.code:8}{budgets.get(name, 0):8}")
    print(
        f"{'':24}{sum(each.modules for each in sizes.values()):5}{sum(each.lines for each in sizes.values()):8}", end=""
    )
    print(f"{sum(each.code for each in sizes.values()):8}{sum(budgets.values()):8}  (modules, lines, code, budget)")
    faults = find_faults({name: size.lines for name, size in sizes.items()}, budgets)
    print(*faults, sep="\n", end="\n" if faults else "")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
