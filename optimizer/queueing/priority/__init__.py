"""Queue model of request classes with priorities that share one continuous batch."""
