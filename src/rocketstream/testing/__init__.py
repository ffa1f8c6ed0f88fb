"""RocketMQ for tests: embedded brokers, or real ones (jars from Maven Central), free ports, faults, a pytest plugin.

The names below are imported when they are first asked for. Every pytest run of every user who has rocketstream
installed loads this package (the plugin is an entry point), so it has to cost nothing until it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketstream.testing.cluster import RocketMQCluster as RocketMQCluster
    from rocketstream.testing.cluster_proxy import ClusterProxy as ClusterProxy
    from rocketstream.testing.embedded_cluster import EmbeddedCluster as EmbeddedCluster
    from rocketstream.testing.fault_proxy import FaultProxy as FaultProxy
    from rocketstream.testing.jars import JarSet as JarSet
    from rocketstream.testing.jars import resolve_jars as resolve_jars
    from rocketstream.testing.java import Java as Java
    from rocketstream.testing.java import find_java as find_java
    from rocketstream.testing.manual_time import ManualTime as ManualTime
    from rocketstream.testing.spark_cluster import SparkStandalone as SparkStandalone

_HOME = {
    "ClusterProxy": "rocketstream.testing.cluster_proxy",
    "EmbeddedCluster": "rocketstream.testing.embedded_cluster",
    "FaultProxy": "rocketstream.testing.fault_proxy",
    "RocketMQCluster": "rocketstream.testing.cluster",
    "ManualTime": "rocketstream.testing.manual_time",
    "SparkStandalone": "rocketstream.testing.spark_cluster",
    "JarSet": "rocketstream.testing.jars",
    "resolve_jars": "rocketstream.testing.jars",
    "Java": "rocketstream.testing.java",
    "find_java": "rocketstream.testing.java",
}

__all__ = [
    "ClusterProxy",
    "EmbeddedCluster",
    "FaultProxy",
    "JarSet",
    "Java",
    "ManualTime",
    "RocketMQCluster",
    "SparkStandalone",
    "find_java",
    "resolve_jars",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
