"""`load_pipeline`: what a good file becomes, and that each mistake is told in one sentence, with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketstream.errors import ConfigurationError
from rocketstream.spark.pipeline import PipelineFileError, load_pipeline
from rocketstream.spark.pipeline.model import Trigger
from rocketstream.spark.pipeline.read_sources import MESSAGE_COLUMNS
from rocketstream.wire.columns import COLUMNS
from tests.spark.pipeline.examples import COMPLETE, changed, line_of, mistakes_in


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "regions.csv").write_text("region,title\n", "utf-8")
    path = tmp_path / "orders.toml"
    path.write_text(COMPLETE, "utf-8")
    return path


def test_a_good_file(file: Path) -> None:
    pipeline = load_pipeline(file)
    (source,) = pipeline.sources
    assert (pipeline.name, pipeline.checkpoint) == ("orders", str(file.parent / "state"))
    assert pipeline.spark == {"spark.sql.shuffle.partitions": "2"}
    assert source.options == {
        "nameServers": "127.0.0.1:9876",
        "topics": "orders,returns",
        "startingOffsets": "earliest",
        "group": "orders-pipeline",
    }
    assert [column.ddl for column in source.schema][:3] == [
        "`order_id` STRING",
        "`region` STRING",
        "`amount` DECIMAL(12,2)",
    ]
    assert [column.name for column in source.schema if column.required] == ["order_id"]
    assert "properties" not in source.columns
    assert "body" not in source.columns
    assert source.dead_letter is not None
    assert source.dead_letter.path == str(file.parent / "dead")
    assert [step.uses for step in pipeline.steps] == [("orders", "regions"), ("known",)]
    assert pipeline.uses("per_minute") == {"orders", "regions"}
    files, back = pipeline.sinks
    assert files.trigger == Trigger("2 seconds")
    assert back.trigger == Trigger(available_now=True)
    assert back.options == {"nameServers": "127.0.0.1:9876", "topic": "per-minute"}
    assert back.message == {"keys": "title"}


def test_message_columns_are_those_of_the_source() -> None:
    assert MESSAGE_COLUMNS == COLUMNS


def test_yaml_says_the_same(file: Path) -> None:
    import tomllib

    other = file.with_suffix(".yaml")
    other.write_text(json.dumps(tomllib.loads(COMPLETE), indent=1), "utf-8")
    ours, theirs = load_pipeline(file), load_pipeline(other)
    assert theirs.sources[0].options == ours.sources[0].options
    assert [step.sql for step in theirs.steps] == [step.sql for step in ours.steps]
    assert [sink.path for sink in theirs.sinks] == [sink.path for sink in ours.sinks]


def test_a_text_is_a_pipeline(tmp_path: Path) -> None:
    text = COMPLETE.replace("regions.csv", str(tmp_path / "regions.csv"))
    (tmp_path / "regions.csv").touch()
    pipeline = load_pipeline(text)
    assert pipeline.file == "<text>"
    assert pipeline.checkpoint == str(Path.cwd() / "state")


def test_name_servers_of_the_command_line_go_first(file: Path) -> None:
    file.write_text(changed(('group = "orders', 'nameServers = "own:1", group = "orders')), "utf-8")
    assert load_pipeline(file).sources[0].options["nameServers"] == "own:1"
    pipeline = load_pipeline(file, name_servers="other:1")
    assert pipeline.sources[0].options["nameServers"] == "other:1"
    assert pipeline.sinks[1].options["nameServers"] == "other:1"


def test_variables(file: Path) -> None:
    text = changed(('"127.0.0.1:9876"', '"${SERVERS}"'), ('"10 minutes"', '"${DELAY:-3 minutes}"'))
    file.write_text(text.replace("available_now = true", 'available_now = "${NOW:-true}"'), "utf-8")
    pipeline = load_pipeline(file, environ={"SERVERS": "there:9876"})
    (source,) = pipeline.sources
    assert source.options["nameServers"] == "there:9876"
    assert source.watermark is not None
    assert source.watermark.delay == "3 minutes"
    assert pipeline.sinks[1].trigger.available_now


def test_secrets_are_not_shown(file: Path) -> None:
    file.write_text(changed(("[spark]", 'accessKey = "me"\nsecretKey = "hunter2"\n\n[spark]')), "utf-8")
    assert "hunter2" not in repr(load_pipeline(file))


def test_all_mistakes_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    text = changed(("topics =", "topicz ="), ("FROM orders o", "FROM ordesr o"), ('"parquet"', '"parket"'))
    lines = [int(mistake.split(":")[0]) for mistake in mistakes_in(tmp_path, text)]
    assert lines == sorted(lines)
    assert len(lines) == 4


# --- one mistake each ---------------------------------------------------------------------------------------------

#: What is replaced, by what, which line is told (by something that is in it, "" for the file), and what is said.
MISTAKES = [
    ('name = "orders"\n', "nmae = 'x'\n", "nmae", "unknown key 'nmae': did you mean 'name'?"),
    ('checkpoint = "state"', "", "", "`checkpoint` is missing"),
    ('checkpoint = "state"', "checkpoint = 5", "checkpoint", "`checkpoint` must be a text, not the number 5"),
    ('checkpoint = "state"', 'checkpoint = " "', "checkpoint", "`checkpoint` must not be empty"),
    (
        'nameServers = "127',
        'nameServer = "127',
        "nameServer =",
        "unknown key 'nameServer': did you mean 'nameServers'?",
    ),
    ('"127.0.0.1:9876"', '"nowhere:port"', "nowhere", "nameServers="),
    ("[rocketmq]", "[rocketmq]\naccessKey = 'a'", "accessKey", "option secretKey is missing"),
    ("sql.shuffle.partitions = 2", "sql.x = [2]", "sql.x", "must be a text, a number, true or false, not a list"),
    ('"2 seconds"', '"soon"', "soon", "`processing_time` must be a span like '10 minutes' or '30 seconds', not 'soon'"),
    ('processing_time = "2 seconds"', "", "[trigger]", "give `processing_time` or `available_now`"),
    ("processing_time =", "once = true\nprocessing_time =", "once", "are two triggers: give one"),
    # sources
    ('topics = ["orders", "returns"]', "", "[[sources]]", "source 'orders': `topics` is missing"),
    ('"returns"]', "7]", "topics", "source 'orders': `topics` must be a text or a list of texts, not the number 7"),
    ('"returns"]', '"orders"]', "topics", "`topics` names 'orders' twice"),
    ('"returns"]', '"a b"]', "topics", "a b"),
    ("topics =", 'topic = "x"\ntopics =', "topic =", "`topic` and `topics` are two ways to say the same"),
    ("startingOffsets =", "startingOffset =", "startingOffset", "has no option 'startingOffset': did you mean"),
    ('"earliest"', '"earlier"', "earlier", "startingOffsets="),
    ('group = "orders-pipeline"', "maxOffsetsPerTrigger = 0", "maxOffsets", "maxOffsetsPerTrigger=0 must be from 1"),
    ('group = "orders-pipeline"', 'topic = "x"', "options", "say `topics` in the source itself"),
    ('group = "orders-pipeline"', 'endingOffsets = "latest"', "options", "option 'endingOffsets' is for batches"),
    ("options = {", "optoins = {", "optoins", "unknown key 'optoins': did you mean 'options'?"),
    ('[[sources]]\nname = "orders"', "[[sources]]", "[[sources]]", "source 1: `name` is missing"),
    ('[[sources]]\nname = "orders"', '[[sources]]\nname = "1st"', "1st", "`name` must be made of letters"),
    ('dead_letter = { path = "dead" }', "", "[sources.schema]", "`dead_letter` is missing"),
    ('{ path = "dead" }', "{}", "dead_letter", "give a `path` or a `topic`"),
    ('{ path = "dead" }', '{ path = "d", topic = "t" }', "dead_letter", "`path` and `topic` are two places: give one"),
    ('{ path = "dead" }', '{ path = "d", format = "xml" }', "dead_letter", "`format` must be parquet or json"),
    ('{ path = "dead" }', '{ topic = "a b" }', "dead_letter", "a b"),
    ('{ path = "dead" }', '"somewhere"', "dead_letter", "`dead_letter`: must be a table, not a text"),
    ('{ path = "dead" }', '{ path = "out" }', "out", "is where"),
    ('"STRING NOT NULL"', '"STRNG"', "STRNG", "column 'order_id': 'STRNG' is no type: did you mean 'STRING'?"),
    ('"STRING NOT NULL"', '"STRING NOT"', "STRING NOT", "column 'order_id': after NOT there must be 'NULL'"),
    ('"STRING NOT NULL"', "5", "order_id = 5", "the type of column 'order_id' must be a text, not the number 5"),
    ("DECIMAL(12,2)", "DECIMAL(50,2)", "DECIMAL(50", "DECIMAL(50,2) can't be"),
    ('region = "STRING"', 'Order_ID = "STRING"', "Order_ID", "column 'Order_ID' is there twice"),
    ("count: INT>>", "count: INT>", "count", "after what ARRAY is made of there must be '>'"),
    ('column = "created_at"', 'column = "creatd_at"', "creatd", "no column 'creatd_at': did you mean 'created_at'?"),
    ('column = "created_at"', 'column = "region"', 'column = "region"', "'region' must be a TIMESTAMP, and is STRING"),
    ('delay = "10 minutes"', "", "watermark", "`watermark`: `delay` is missing"),
    ('"10 minutes"', '"10 min"', "10 min", "`delay` must be a span like"),
    ('columns = ["order_id"]', 'columns = ["oder_id"]', "oder_id", "no column 'oder_id': did you mean 'order_id'?"),
    ('columns = ["order_id"]', "", "dedupe", "`columns` is missing"),
    (
        '[sources.watermark]\ncolumn = "created_at"\ndelay = "10 minutes"\n',
        "",
        "dedupe",
        "`dedupe` needs a `watermark`",
    ),
    ("[sources.schema]", 'message_columns = ["tag"]\n[sources.schema]', "message_columns", "did you mean 'tags'?"),
    ("[sources.schema]", 'json_options = { mode = "x" }\n[sources.schema]', "json_options", "is set by the pipeline"),
    # lookups
    ('path = "regions.csv"', 'path = "region.csv"', "region.csv", "lookup 'regions': there is nothing at"),
    ('path = "regions.csv"', 'path = "state"', "[[lookups]]", "`format` is missing"),
    ('path = "regions.csv"', 'path = "regions.csv"\nformat = "cvs"', "cvs", "did you mean 'csv'?"),
    # steps
    ('name = "regions"', 'name = "Known"', "[[steps]]", "the name 'known' is taken by the table of line 31"),
    (
        "FROM orders o",
        "FROM ordrs o",
        "FROM ordrs",
        "no source, lookup or earlier step 'ordrs': did you mean 'orders'?",
    ),
    ("FROM orders o", "FROM known o", "FROM known o", "step 'known': it uses itself"),
    ("FROM orders o", "FROM per_minute o", "FROM per_minute", "step 'known': it uses 'per_minute', which uses 'known'"),
    ("FROM known GROUP", "FROM known; SELECT 1 GROUP", "; SELECT", "`sql` must be one query"),
    ('"""\nSELECT o.', '"""\n"""\nx = """SELECT o.', "sql = ", "`sql` must not be empty"),
    # sinks
    ('from = "known"', 'from = "knwon"', "knwon", "no source or step 'knwon': did you mean 'known'?"),
    ('from = "known"', 'from = "regions"', 'from = "regions"', "is made of no source, only of lookups"),
    ('type = "parquet"', "", "[[sinks]]", "sink 'files': `type` is missing"),
    ('path = "out"', "", "[[sinks]]", "sink 'files': `path` is missing"),
    ('path = "out"', 'path = "."', 'path = "."', "`checkpoint` must not be inside of"),
    ('path = "out"', 'path = "out"\ntopic = "x"', 'topic = "x"', "`topic` is nothing for a sink of type parquet"),
    ('path = "out"', 'path = "out"\noutput_mode = "complete"', "complete", "can only append, not complete"),
    ('path = "out"', 'path = "out"\noutput_mode = "upsert"', "upsert", "must be append, update or complete"),
    ('path = "out"', 'path = "out"\noptions = { path = "x" }', "options = { path", "is the `path` in the sink"),
    ('name = "back"', 'name = "Files"', '[[sinks]]\nname = "Files"', "the name 'Files' is taken by the sink of line"),
    ('name = "back"', 'name = "a/b"', "a/b", "`name` must be made of letters, digits, _ and -"),
    ('topic = "per-minute"', "", '[[sinks]]\nname = "back"', "sink 'back': `topic` is missing"),
    ('keys = "title"', 'key = "title"', "key =", "unknown key 'key': did you mean 'keys'?"),
    ('keys = "title"', 'options = { batchSize = "many" }', "many", "batchSize="),
]


@pytest.mark.parametrize(("old", "new", "where", "said"), MISTAKES)
def test_a_mistake(old: str, new: str, where: str, said: str, tmp_path: Path) -> None:
    text = changed((old, new))
    told = mistakes_in(tmp_path, text)
    matching = [mistake for mistake in told if said in mistake]
    assert matching, told
    assert len(told) <= 2, told
    line = text[: text.index(where)].count("\n") + 1 if where else 0
    assert matching[0].startswith(f"{line}: ")
    assert all("\n" not in mistake for mistake in told)


def test_a_later_step_is_told_apart_from_a_circle(tmp_path: Path) -> None:
    text = changed(("FROM known GROUP", "FROM last GROUP"))
    text += '\n[[steps]]\nname = "last"\nsql = "SELECT * FROM orders"\n'
    assert mistakes_in(tmp_path, text) == [
        f"{line_of(text, 'FROM last')}: step 'per_minute': it uses 'last', a later step: move that one up"
    ]


def test_columns_of_a_sink_that_takes_a_source(tmp_path: Path) -> None:
    text = changed(('from = "known"', 'from = "orders"'), ('["title"]', '["regoin"]'))
    assert mistakes_in(tmp_path, text) == [
        f"{line_of(text, 'regoin')}: sink 'files': `partition_by`: 'orders' has no column 'regoin':"
        " did you mean 'region'?"
    ]


def test_group_by_without_a_watermark(tmp_path: Path) -> None:
    text = changed(
        ('dedupe = { columns = ["order_id"] }\n', ""),
        ('[sources.watermark]\ncolumn = "created_at"\ndelay = "10 minutes"\n', ""),
    )
    (told,) = mistakes_in(tmp_path, text)
    assert "step 'per_minute': GROUP BY needs a `watermark`" in told


def test_all_wrong_options_of_one_source(tmp_path: Path) -> None:
    text = changed(('group = "orders-pipeline"', 'group = "a b", minPartitions = "x", tls = "maybe", nonsense = 1'))
    told = mistakes_in(tmp_path, text)
    assert len(told) == 4
    assert all(mistake.startswith("16: source 'orders'") for mistake in told)


def test_missing_name_servers_are_told_where_they_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    text = changed(('[rocketmq]\nnameServers = "127.0.0.1:9876"\n', ""))
    told = mistakes_in(tmp_path, text)
    assert [mistake.split(":")[0] for mistake in told] == [
        str(line_of(text, "[[sources]]")),
        str(text[: text.index('[[sinks]]\nname = "back"')].count("\n") + 1),
    ]
    assert all("option nameServers is missing" in mistake for mistake in told)


def test_wrong_kinds_of_everything(tmp_path: Path) -> None:
    text = 'name = []\ncheckpoint = {}\nsources = {}\nlookups = 1\nsteps = ["x"]\nsinks = []\n'
    text += "spark = 1\nrocketmq = 2\ntrigger = 3\n"
    told = mistakes_in(tmp_path, text)
    for line in (1, 2, 3, 4, 5, 7, 8, 9):
        assert any(mistake.startswith(f"{line}: ") for mistake in told), (line, told)
    assert "0: there is no source: a pipeline needs at least one [[sources]]" in told


def test_a_variable_that_is_not_set(tmp_path: Path) -> None:
    text = changed(("FROM orders o", "FROM ${TABLE} o"), ('"state"', '"${STATE"'), ('"out"', '"${1}"'))
    assert mistakes_in(tmp_path, text) == [
        "2: a variable that begins with ${ has no } at its end (for a plain ${ write $${)",
        f"{line_of(text, '${TABLE}')}: the environment has no variable 'TABLE': set it, or write ${{TABLE:-default}}",
        f"{line_of(text, '${1}')}: ${{1}} is no variable: write ${{NAME}} or ${{NAME:-default}}",
    ]


@pytest.mark.parametrize(
    ("suffix", "text", "line"),
    [
        ("toml", "a = 1\nb =\n", 2),
        ("toml", "a = 1\na = 2\n", 2),
        ("yaml", "a: 1\nb: [1\n", 3),
        ("yaml", "a: 1\na: 2\n", 2),
    ],
)
def test_no_toml_and_no_yaml(suffix: str, text: str, line: int, tmp_path: Path) -> None:
    (told,) = mistakes_in(tmp_path, text, suffix)
    assert told.startswith(f"{line}: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the file can't be read: No such file"):
        load_pipeline(tmp_path / "none.toml")
    with pytest.raises(ConfigurationError, match=r"a pipeline is a \.toml or a \.yaml file"):
        load_pipeline(tmp_path / "none.json")
    (tmp_path / "latin.toml").write_bytes(b'name = "x"\n# caf\xe9\n')
    with pytest.raises(PipelineFileError, match=r"latin\.toml:2: this is not UTF-8"):
        load_pipeline(tmp_path / "latin.toml")
