"""Triggers: deferred work in the triggerer, without a worker slot."""
