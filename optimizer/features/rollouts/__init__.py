"""Feature: cards for extra replicas during roll-outs."""
