"""The checker: it proves a plan from snapshot, plan and one price per broker. It imports nothing of the solver."""
