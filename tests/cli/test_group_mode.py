"""`rocketstream group mode`: whether a group pops or pulls, as a person and as a program read it."""

from __future__ import annotations

import json

import pytest

from tests.cli.printed import rows


@pytest.mark.feature("pop/request-mode")
@pytest.mark.rocketmq_versions("5.5.0")
def test_a_group_is_set_to_pop_and_back(run, topic, unique_group):
    run("group", "create", unique_group)
    none = run("group", "mode", unique_group)
    assert (none.stdout, none.stderr) == ("", f"No mode was set: group {unique_group} pulls.\n")
    assert rows(run("group", "mode", unique_group, topic, "pop")) == [[topic, "broker-a", "pop", "all"]]
    assert rows(run("group", "mode", unique_group, topic, "pop", "--share-queues", "2")) == [
        [topic, "broker-a", "pop", "2"]
    ]
    (told,) = json.loads(run("group", "mode", unique_group, "--json").stdout)
    assert told == {
        "group": unique_group,
        "topic": topic,
        "broker_name": "broker-a",
        "mode": "POP",
        "share_queues": 2,
    }
    assert rows(run("group", "mode", unique_group, topic, "pull")) == [[topic, "broker-a", "pull", "-"]]
    wrong = run("group", "mode", unique_group, topic, "push", code=2)
    assert "mode='push' must be 'POP' or 'PULL'" in wrong.stderr
