"""rocketstream: the RocketMQ client for Python and Spark."""
