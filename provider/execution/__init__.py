"""Execution of plans. `decisions` imports none of the rest; the other folders build on the modules beside them."""
