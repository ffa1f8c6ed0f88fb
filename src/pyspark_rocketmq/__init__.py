"""The name under which Spark finds `format("rocketmq")`: it imports every module named `pyspark_*`.

The rule of this file: to import it never fails. One broken `pyspark_*` module stops Spark's look-up for all of them,
so where the `spark` extra is not installed this one just has no source.
"""

from __future__ import annotations

import logging

try:
    from rocketstream.spark.source import RocketMQDataSource as DefaultSource  # noqa: F401
except Exception:  # whatever is missing or broken, other people's sources must still be found
    logging.getLogger("rocketstream.spark").warning("format('rocketmq') is not available", exc_info=True)
