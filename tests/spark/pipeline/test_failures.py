"""One sentence out of a hundred lines of Java."""

from __future__ import annotations

import pytest

from rocketstream.spark.pipeline.failures import cause

PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:\
 [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform\
 latestOffset: Traceback (most recent call last):
  File "x.py", line 5, in latestOffset
    raise error
rocketstream.errors.ConnectError: 10.0.0.1:9876: nobody listens

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "y.py", line 9, in main
    raise PySparkRuntimeError
pyspark.errors.exceptions.base.PySparkRuntimeError: [X] wrapped
\tat org.apache.spark.Something(Something.scala:5)
SQLSTATE: 38000
"""
WORKER = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in\
 stage 3.0 (TID 2) (host executor driver): org.apache.spark.api.python.PythonException: Traceback\
 (most recent call last):
  File "z.py", line 1, in f
ValueError: not so

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:5)
Caused by: java.lang.RuntimeException: Java's own
"""
JAVA = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0\
 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 2) (192.0.2.2 executor driver):\
 org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` instead. SQLSTATE:\
 22012
== SQL (line 1, position 8) ==
select 1/0
\tat org.apache.spark.X(X.scala:1)
"""
ANALYSIS = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `a` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'P"
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (PYTHON, "10.0.0.1:9876: nobody listens"),
        (WORKER, "ValueError: not so"),
        (JAVA, "Division by zero. Use `try_divide` instead."),
        (ANALYSIS, "A column with name `a` cannot be resolved."),
        ("java.io.IOException: disk full\n\tat java.x.Y(Z.java:1)", "disk full"),
        ("", "Spark gave no reason"),
    ],
)
def test_the_cause(text: str, sentence: str) -> None:
    assert cause(text) == sentence


def test_it_is_never_long() -> None:
    assert len(cause("x " * 5000)) < 700
