"""Plans from their publication to their end: the plan slot, the runner, cancel and rollback."""
