"""Pop: messages leased for a while instead of queues owned.

A pop reads on from where its group is in a queue and leases what it found: `leases` knows what is out and until when,
`lease_log` keeps that over restarts, `revival` gives back what was not acknowledged in time. A queue that is popped in
order (`ordering`) is blocked instead, until what was popped is done or its time is over. `taking` reads the queues,
`waiting` holds pops that found nothing, `acknowledging` ends or prolongs leases, `service` answers the requests.
"""

from rocketstream.broker.pop.service import Pop

__all__ = ["Pop"]
