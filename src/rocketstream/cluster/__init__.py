"""Name servers, routes, broker addresses, and the client instance that producers and consumers share."""
