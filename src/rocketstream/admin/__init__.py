"""What an operator asks of a cluster: topics, groups, offsets, messages, brokers.

Each file is one concern, as coroutines that belong to the I/O thread; `core.AdminCore` is all of them together, and
`client.AdminClient` its plain face. The rule of the room: what a broker did not say is not invented. A value that could
not be had is `None` where the operator asked for a table, and an error where it is the answer.
"""
