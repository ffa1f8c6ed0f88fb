"""RocketMQ in Spark: a source, a sink, the push consumer on executors, and pipelines."""
