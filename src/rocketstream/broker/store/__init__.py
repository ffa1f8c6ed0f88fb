"""Where the embedded broker keeps messages: a log of records, and an index that finds them by queue, key and time."""
