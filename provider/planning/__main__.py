"""`python -m kafka_steward.planning`: make plans from the command line."""

import sys

from kafka_steward.planning.spark.job import main

sys.exit(main())
