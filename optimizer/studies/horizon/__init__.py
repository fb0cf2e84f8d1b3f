"""Plans loads by the hour: reservations for the entire time, and rentals in each hour."""
