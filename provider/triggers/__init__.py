"""Triggers: deferred work in the triggerer, without a worker slot."""

from kafka_steward.deprecated import keep_former_modules

keep_former_modules(__name__, "undo_plan")
