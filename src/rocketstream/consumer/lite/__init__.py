"""The lite pull consumer: the push consumer's pulls, queues and offsets, with a program that polls for its listener."""
