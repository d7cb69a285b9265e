"""Proves a plan from the snapshot, the plan and one price per broker. It shares no module with the solver."""
