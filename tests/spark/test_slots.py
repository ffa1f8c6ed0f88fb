from __future__ import annotations

import pytest

from rocketstream.spark.slots import cores, slots, slots_of

SUBMIT = ["/usr/bin/java", "-Xmx1g", "org.apache.spark.deploy.SparkSubmit"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--conf", "spark.master=local[2]", "pyspark-shell"], 2),
        (["--conf", "spark.master=local[*]"], 24),
        (["--conf", "spark.master=local[3,4]"], 3),
        (["--conf", "spark.master=local"], 1),
        (["--master", "local[7]", "job.py"], 7),
        (["--master", "local-cluster[2,3,1024]", "job.py"], 6),
        (["--master", "spark://host:7077", "--total-executor-cores", "12", "job.py"], 12),
        (["--master", "yarn", "--num-executors", "5", "--executor-cores", "4", "job.py"], 20),
        (["--master", "yarn", "--num-executors", "5", "job.py"], 5),
        (["--master", "spark://host:7077", "--conf", "spark.default.parallelism=9", "job.py"], 9),
        (["--master", "spark://host:7077", "job.py"], None),
        (["--master", "spark://host:7077", "--conf", "spark.cores.max=many", "job.py"], None),
        (["--master"], None),
        ([], None),
    ],
)
def test_a_drivers_command_line_tells_its_slots(arguments: list[str], expected: int | None) -> None:
    assert slots_of([*SUBMIT, *arguments], 24) == expected


def test_without_a_driver_above_it_is_the_cores() -> None:
    assert slots(100) == cores() >= 1


@pytest.mark.parametrize(("queues", "expected"), [(1, 4), (10, 10), (1000, 32)])
def test_a_cluster_of_unknown_size_has_a_slot_for_each_queue(
    monkeypatch: pytest.MonkeyPatch, queues: int, expected: int
) -> None:
    command = [*SUBMIT, "--master", "spark://host:7077", "job.py"]
    monkeypatch.setattr("rocketstream.spark.slots._ancestors", lambda: [["python", "daemon"], command, ["bash"]])
    monkeypatch.setattr("rocketstream.spark.slots.cores", lambda: 4)
    assert slots(queues) == expected
