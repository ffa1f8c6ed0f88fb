"""Pipelines: a file that says which topics go through which SQL into which sinks, checked in full and then run.

from rocketstream.spark.pipeline import PipelineRun, load_pipeline

pipeline = load_pipeline("orders.toml")             # or raises PipelineFileError with all mistakes, each with its line
with PipelineRun(pipeline, spark) as run:           # start() ... stop(); start() checks the SQL before any query starts
    while not run.wait(1.0):                        # True once every query has ended (available_now)
        print(run.progress().lag)

The rule of this package: what can be known without Spark is checked without Spark, and all mistakes are told at once.
"""

from rocketstream.spark.pipeline.files import load_pipeline
from rocketstream.spark.pipeline.mistakes import Mistake, PipelineFileError
from rocketstream.spark.pipeline.model import Pipeline
from rocketstream.spark.pipeline.progress import QueryProgress, RunProgress
from rocketstream.spark.pipeline.running import PipelineFailedError, PipelineRun
from rocketstream.spark.pipeline.session import open_session

__all__ = [
    "Mistake",
    "Pipeline",
    "PipelineFailedError",
    "PipelineFileError",
    "PipelineRun",
    "QueryProgress",
    "RunProgress",
    "load_pipeline",
    "open_session",
]
