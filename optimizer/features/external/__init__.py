"""External services, rented by the token."""
