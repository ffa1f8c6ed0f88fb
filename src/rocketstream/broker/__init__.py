"""The embedded broker: a name server and a broker in one process, the other end of `wire/`."""
