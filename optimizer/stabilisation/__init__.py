"""Turns successive plans into stable desired replica counts."""
