"""What a Spark consumer refuses, before anything is opened: one sentence with the setting and what to do."""

from __future__ import annotations

import logging
import ssl
import threading

import pytest

from rocketstream import ConsumeResult, Credentials, MessageModel
from rocketstream.consumer.hooks import ConsumeHook
from rocketstream.consumer.listener import Listener
from rocketstream.errors import ConfigurationError
from rocketstream.spark import SparkConsumer
from rocketstream.spark.listening.checkpoint import checkpoint_directory
from rocketstream.spark.listening.runner import SparkRunner
from rocketstream.spark.listening.task_log import TaskLog
from tests.spark.consumer.in_process import InProcessConsumer

ADDRESS = "127.0.0.1:1"


def consumer(**settings: object) -> InProcessConsumer:
    return InProcessConsumer(None, "group", ADDRESS, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"model": MessageModel.BROADCASTING}, "use a PushConsumer"),
        ({"offset_store": None}, "checkpoint=DIR"),
        ({"local_offset_dir": "x"}, "broadcasting"),
        ({"client_rebalance": False}, "has all queues"),
        ({"pop_batch_nums": 3}, "does not pop"),
        ({"pop_invisible_time": 9.0}, "does not pop"),
        ({"pop_threshold_for_queue": 3}, "does not pop"),
        ({"adjust_thread_pool_threshold": 3}, "consume_thread_min"),
        ({"tls": ssl.create_default_context()}, "tls=True"),
        ({"round_time": 0}, "from 0.1 to 600"),
        ({"round_time": float("nan")}, "from 0.1 to 600"),
        ({"round_time": True}, "from 0.1 to 600"),
        ({"round_time": "5"}, "from 0.1 to 600"),
        ({"tasks": 0}, "from 1 to 1000"),
        ({"tasks": 2.0}, "from 1 to 1000"),
        ({"beside_members": 1}, "True or False"),
        ({"checkpoint": ""}, "path of a directory"),
        ({"checkpoint": 5}, "path of a directory"),
        ({"checkpoint": "hdfs://host/dir"}, "not a URL"),
        ({"checkpoint": __file__}, "must be a directory"),
        ({"consume_thread_min": 0}, "consume_thread_min=0"),
        ({"checkpont": "x"}, "unknown settings checkpont"),
    ],
)
def test_what_is_refused(setting, words):
    with pytest.raises(ConfigurationError) as refused:
        consumer(**setting)
    said = str(refused.value)
    assert words in said
    assert next(iter(setting)) in said
    assert "\n" not in said


def test_a_session_is_needed():
    with pytest.raises(ConfigurationError, match="spark='local' must be a SparkSession"):
        SparkConsumer("local", "group", ADDRESS)  # type: ignore[arg-type]


class Session:
    """As much of a session as is asked."""

    def __init__(self, **conf: str) -> None:
        self.conf = conf

    def range(self) -> None: ...


def test_an_orderly_consumer_does_not_speculate():
    speculates = Session(**{"spark.speculation": "true"})
    with pytest.raises(ConfigurationError, match=r"spark\.speculation=true"):
        SparkConsumer(speculates, "group", ADDRESS, orderly=True)  # type: ignore[arg-type]
    SparkConsumer(speculates, "group", ADDRESS)  # type: ignore[arg-type]


def test_over_connect_the_configuration_says_how_many_slots_there_are():
    assert SparkRunner(Session(**{"spark.default.parallelism": "7"}), "g").slots() == 7  # type: ignore[arg-type]
    assert SparkRunner(Session(), "g").slots() == 2  # type: ignore[arg-type]


def test_a_directory_may_be_named_as_a_file_url(tmp_path):
    assert checkpoint_directory(f"file://{tmp_path}") == checkpoint_directory(tmp_path) == tmp_path
    assert checkpoint_directory(None) is None


# --- what is sent to executors --------------------------------------------------------------------------------------


def listen(messages: object, context: object) -> ConsumeResult:
    return ConsumeResult.SUCCESS


@pytest.mark.parametrize("name", ["listener", "consume_hooks"])
def test_what_cannot_be_pickled_is_refused_at_the_start(name):
    lock = threading.Lock()

    class Locked(ConsumeHook):
        def __call__(self, messages: object, context: object) -> object:
            return lock

    given = {"listener": listen, name: Locked() if name == "listener" else [Locked()]}
    refused = consumer(**given).subscribe("t")
    with pytest.raises(ConfigurationError) as error:
        refused.start()
    said = str(error.value)
    assert said.startswith(f"{name}=")
    assert "cannot be sent to executors" in said
    assert "cannot pickle '_thread.lock' object" in said


def test_what_only_the_driver_uses_need_not_be_picklable():
    lock = threading.Lock()
    waits = consumer(listener=listen, queue_listener=lambda *_: lock).subscribe("t")
    waits._make_ready(None)
    assert waits.core.shipped
    assert waits.core.listener == Listener(listen, False)
    assert waits.core.slots == 2


def test_secrets_are_in_no_repr():
    secret = consumer(credentials=Credentials("key", "s3cret"), listener=listen)
    assert "s3cret" not in repr(secret)
    assert "s3cret" not in repr(secret.core)


# --- what a task logs -----------------------------------------------------------------------------------------------


def test_the_first_lines_of_a_task_are_kept():
    room = logging.getLogger("rocketstream.consumer")
    with TaskLog() as noted:
        room.info("not this")
        room.warning("one %s", "x" * 20_000)
        # Not through the logger: pytest's own handler would raise.
        noted.emit(logging.makeLogRecord({"name": room.name, "levelno": 30, "msg": "%d", "args": ("no number",)}))
        for number in range(5):
            room.error("line %d", number)
        logging.getLogger("rocketstream.spark.listening").warning("the driver's own")
    room.warning("after")
    assert [line.text for line in noted.lines[2:]] == ["line 0", "line 1", "line 2"]
    assert len(noted.lines[0].text) < 9_000
    assert "could not be formatted" in noted.lines[1].text
    assert noted.more == 2
