"""Throttles that others have set: stricter rates than those of plans, and what is left over."""

from __future__ import annotations

from kafka_steward.assignment import counted
from kafka_steward.doctor.commands import Commands
from kafka_steward.doctor.findings import Finding, Level
from kafka_steward.execution.throttles.leftovers import ThrottleLevel, ThrottleSurvey
from kafka_steward.execution.throttles.rates import external_rates_message, ineffective_message


def throttle_finding(survey: ThrottleSurvey, throttle: int, commands: Commands) -> Finding:
    """Return one finding about the throttles in Kafka. `throttle` is the setting, in bytes per second, 0 for none."""
    lists = sum(each.level is ThrottleLevel.TOPIC for each in survey.leftovers)
    rates, sentences = len(survey.leftovers) - lists, []
    if survey.leftovers:
        named = [counted(rates, "rate")] * bool(rates) + [f"{counted(lists, 'list')} of throttled replicas"] * bool(
            lists
        )
        one = len(survey.leftovers) == 1
        are, them = ("is", "it") if one else ("are", "them")
        sentences.append(
            f"{' and '.join(named)} {are} left over: no reassignment in flight needs {them}, and the next one is "
            f"limited by {them}."
        )
    if survey.in_use:
        sentences.append(
            f"{counted(len(survey.in_use), 'setting')} of others may be in use by reassignments in flight."
        )
    stricter = [rate for rate in survey.rates if rate.bytes_per_s < throttle]
    external = external_rates_message(stricter, throttle, whose="a plan's", connection=commands.connection)
    sentences += filter(None, (external, ineffective_message(throttle)))
    if not sentences:
        return Finding("throttles", Level.OK, "No throttle is left over, and no rate is stricter than that of plans.")
    command = commands.steward("throttles") if survey.leftovers or survey.in_use else ""
    return Finding("throttles", Level.NOTE, " ".join(sentences), command)
