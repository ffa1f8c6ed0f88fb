"""The push consumer with Spark as its consume service: a driver that plans, tasks that run the listener."""
