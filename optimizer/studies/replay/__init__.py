"""Loads of the past through planning and stabilisation: what each rule would have done."""
