"""`python -m kafka_steward.planning`: make plans from the command line."""

import sys

from kafka_steward.errors import PlanningFailed
from kafka_steward.planning.spark.installed import prefer_code_of_jars

try:
    prefer_code_of_jars()
except PlanningFailed as error:
    sys.exit(str(error))

from kafka_steward.planning.spark.job import main

sys.exit(main())
