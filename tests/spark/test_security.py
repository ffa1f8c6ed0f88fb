"""Spark itself against a broker that denies, over TLS with client certificates; and where the secret does not show.

(What its tasks do on real brokers: tests/contract/test_security.py.)
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rocketstream.testing import EmbeddedCluster
from tests.contract.secured import ADMIN, CLERK, CLOSED, GROUP, ORDERS, Account, Pki, admin_client, embedded_users


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def cluster(pki: Pki) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(
        users=embedded_users(),
        tls=pki.server_context(wants_clients=True),
        name_server_tls=pki.context(pki.client),
    ) as cluster:
        with admin_client(cluster, pki) as client:
            for topic in (ORDERS, CLOSED):
                client.create_topic(cluster.brokers[0].address, topic, queues=2)
        yield cluster


def options(cluster: EmbeddedCluster, pki: Pki, account: Account, **others: str) -> dict[str, str]:
    return {
        "nameServers": cluster.name_server_address,
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "tlsCaFile": pki.ca_file,
        "tlsCertFile": pki.client[0],
        "tlsKeyFile": pki.client[1],
        **others,
    }


@pytest.mark.feature("security/spark", "security/secrets")
@pytest.mark.slow(15, "runs several jobs of Spark")
def test_read_write_and_stream_with_a_key_that_shows_nowhere(
    spark: SparkSession, cluster: EmbeddedCluster, pki: Pki, tmp_path: Path
) -> None:
    shown: list[str] = []
    given = options(cluster, pki, CLERK, topic=ORDERS)
    rows = spark.createDataFrame([(f"row {number}",) for number in range(5)], "body string")
    rows.write.format("rocketmq").options(**given).mode("append").save()

    frame = spark.read.format("rocketmq").options(**given, group=GROUP, commitOffsets="false").load()
    assert sorted(bytes(row.body) for row in frame.collect()) == [b"row %d" % number for number in range(5)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain(extended=True)
    shown += [printed.getvalue(), repr(frame)]

    stream = spark.readStream.format("rocketmq").options(**given, group=GROUP, startingOffsets="earliest").load()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        stream.explain(extended=True)
    sink = options(cluster, pki, CLERK, topic=ORDERS)
    query = (
        stream.select("body")
        .writeStream.format("rocketmq")
        .options(**sink, checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    shown += [printed.getvalue(), repr(query), *(progress.json for progress in query.recentProgress)]
    written = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert written
    shown += [path.read_text(errors="replace") for path in written]
    assert spark.read.format("rocketmq").options(**given, group=GROUP, commitOffsets="false").load().count() == 10
    assert not [text for text in shown if CLERK.secret_key in text]


@pytest.mark.feature("security/spark", "security/secrets")
def test_who_may_not_is_told_before_the_first_task(spark: SparkSession, cluster: EmbeddedCluster, pki: Pki) -> None:
    wrong = Account(CLERK.access_key, "wrong-secret-8888")
    cases = (
        (options(cluster, pki, CLERK, topic=CLOSED, group=GROUP), "access key 'the-clerk'.*Topic:closed-topic"),
        (options(cluster, pki, wrong, topic=ORDERS, group=GROUP), "access key 'the-clerk'.*check signature failed"),
        ({**options(cluster, pki, CLERK, topic=ORDERS), "tlsCaFile": pki.other_ca_file}, "certificate is not trusted"),
        ({**options(cluster, pki, CLERK, topic=ORDERS), "tlsKeyFile": pki.server[1]}, "key is not the one of the cert"),
    )
    for given, words in cases:
        with pytest.raises(PySparkException, match=words) as caught:
            spark.read.format("rocketmq").options(**given).load().collect()
        for secret in (CLERK.secret_key, wrong.secret_key, ADMIN.secret_key):
            assert secret not in str(caught.value)
