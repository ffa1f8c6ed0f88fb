"""The main job, for everybody to look at: orders on a broker, a push consumer, a Spark pipeline, a report."""
