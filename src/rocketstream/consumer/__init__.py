"""Consuming: flow control, pull, pop, results, process queue, dispatch, offsets, rebalance, retry."""
