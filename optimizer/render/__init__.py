"""What people read and look at: tables for the terminal, pages, pictures."""
