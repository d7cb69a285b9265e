"""Execution of plans: pure modules decide, the others act. The docstring of a pure module says so."""
