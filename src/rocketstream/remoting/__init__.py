"""Commands over connections: pool, time-outs, hooks, ACL, TLS."""
