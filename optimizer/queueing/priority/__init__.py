"""Classes of requests with priorities in the queue of one continuous batch."""
