"""The trigger of a cancel by its former name, which tasks have that an earlier release deferred."""

from kafka_steward.triggers.run_plan import RunPlanTrigger

UndoPlanTrigger = RunPlanTrigger
