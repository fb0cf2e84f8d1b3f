"""What all servers share: one object for each limit, in a table."""
