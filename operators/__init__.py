"""The operators of the provider."""

from kafka_steward.deprecated import keep_former_modules

keep_former_modules(__name__, "conf", "given", "joined", "notify", "outcome", "owed", "people", "rollback", "spark")
