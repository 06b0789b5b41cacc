"""Measurements of the lab on this machine. Numbers are for comparison side by side, never for a test."""
