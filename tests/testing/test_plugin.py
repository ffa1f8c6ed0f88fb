"""The plugin in other people's test runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from rocketstream.testing.jars import cache_directory

# pytester gives its runs another home; they are to use our jars all the same.
CACHE = cache_directory()

TEST = """
def test_it(rocketmq_cluster, unique_topic):
    assert rocketmq_cluster.brokers
"""


@pytest.fixture(autouse=True)
def quiet_and_warm(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETSTREAM_CACHE", str(CACHE))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")


def test_costs_nothing_until_it_is_used() -> None:
    """Everybody's pytest imports it."""
    code = (
        "import sys, json, pytest; before = set(sys.modules); import rocketstream.testing.plugin;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    imported = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    expensive = ("rocketstream.testing.", "rocketstream.cli", "platformdirs", "typer", "rich", "pyspark")
    assert [name for name in imported if name.startswith(expensive)] == ["rocketstream.testing.plugin"]


def test_runs_once_per_version(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    result = pytester.runpytest("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::test_it[[]5.5.0]", "*::test_it[[]4.9.7]"])


def test_versions_can_be_chosen(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        TEST
        + """
import pytest
@pytest.mark.rocketmq_versions("5.5.0")
def test_five(rocketmq_cluster):
    pass
"""
    )
    result = pytester.runpytest(
        "--collect-only", "-q", "--strict-markers", "--rocketmq-version", "4.9.7", "--rocketmq-version", "4.9.8"
    )
    names = re.findall(r"::(\S+)", result.stdout.str())
    assert names == ["test_it[4.9.7]", "test_it[4.9.8]", "test_five[NOTSET]"]
    result = pytester.runpytest("--collect-only", "-q", "-k", "five")
    assert re.findall(r"::(\S+)", result.stdout.str()) == ["test_five[5.5.0]"]


def test_embedded_brokers_are_a_target_of_who_asks_for_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        TEST
        + """
import pytest
@pytest.mark.rocketmq_versions("5.5.0")
def test_five(rocketmq_cluster):
    assert rocketmq_cluster.version == "5.5.0"
@pytest.mark.rocketmq_versions("4.9.7")
def test_four(rocketmq_cluster):
    pass
@pytest.mark.rocketmq_real
def test_real(rocketmq_cluster):
    pass
"""
    )
    result = pytester.runpytest("-v", "--strict-markers", "--rocketmq-version", "embedded")
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(["*::test_it[[]embedded] PASSED*", "*::test_five[[]embedded] PASSED*"])
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nrocketmq_targets = embedded 4.9.7\n")
    result = pytester.runpytest("--collect-only", "-q")
    names = re.findall(r"::(\S+)", result.stdout.str())
    assert names == [
        "test_it[embedded]",
        "test_five[embedded]",
        "test_it[4.9.7]",
        "test_four[4.9.7]",
        "test_real[4.9.7]",
    ]


def test_an_embedded_broker_for_each_test_and_one_whose_time_stands_still(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import time
from rocketstream import AdminClient, Message, Producer

addresses = []

def test_one(embedded_broker):
    addresses.append(embedded_broker)
    with Producer("p", embedded_broker.address) as producer:
        producer.send(Message("orders", b"x"))

def test_another(embedded_broker):
    addresses.append(embedded_broker)
    with AdminClient(embedded_broker.address) as admin:
        assert "orders" not in [topic.name for topic in admin.topics()]
    assert [broker.running for broker in addresses] == [False, True]

def test_time(manual_embedded_broker):
    clock = manual_embedded_broker.clock
    began = clock.wall()
    assert abs(began - time.time()) < 60
    manual_embedded_broker.advance(3600)
    assert clock.wall() == began + 3600
"""
    )
    pytester.runpytest().assert_outcomes(passed=3)


def test_skips_with_a_reason_without_java(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(TEST)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("ROCKETSTREAM_REQUIRE_REAL", raising=False)
    result = pytester.runpytest("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*no real RocketMQ 5.5.0: Java 17 or newer is needed to run RocketMQ*"])


def test_fails_without_java_where_skipping_is_not_allowed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(TEST)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("ROCKETSTREAM_REQUIRE_REAL", "1")
    result = pytester.runpytest()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*JavaNotFoundError: Java 17 or newer is needed to run RocketMQ*"])


def test_names_are_unique_legal_and_tell_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import re, pytest
seen = set()

@pytest.mark.parametrize("x", ["a b/%$ü", "*" * 300, "z" * 300])
def test_of_names(unique_topic, unique_group, x):
    for name, prefix in ((unique_topic, "t-of-names"), (unique_group, "g-of-names")):
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
        assert name.startswith(prefix)
        assert name not in seen
        seen.add(name)
"""
    )
    pytester.runpytest().assert_outcomes(passed=3)


def test_tests_of_a_version_run_together_on_one_cluster(pytester: pytest.Pytester) -> None:
    """Only one real cluster lives at a time, and starts once."""
    pytester.makeconftest(
        """
import pytest
import rocketstream.testing.cluster as module

class Fake:
    living = 0
    def __init__(self, version): self.version = version
    def __enter__(self):
        Fake.living += 1
        assert Fake.living == 1
        print("started", self.version)
        return self
    def __exit__(self, *error):
        Fake.living -= 1

module.RocketMQCluster = Fake
"""
    )
    pytester.makepyfile(
        """
def test_one(rocketmq_cluster): print("one", rocketmq_cluster.version)
def test_two(rocketmq_cluster): print("two", rocketmq_cluster.version)
"""
    )
    result = pytester.runpytest_subprocess("-s", "-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4)
    said = re.findall(r"(?:started|one|two) [\d.]+\d", result.stdout.str())
    assert said == ["started 5.5.0", "one 5.5.0", "two 5.5.0", "started 4.9.7", "one 4.9.7", "two 4.9.7"]
