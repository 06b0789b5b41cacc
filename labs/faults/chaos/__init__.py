"""Faults at moments that nobody chose: in the driver, among the brokers, and in the network between them."""

from labs.faults.chaos.journal import Journal, Strike
from labs.faults.chaos.plan import KILLS, KINDS, WITHOUT_EXECUTORS, ChaosPlan

__all__ = ["KILLS", "KINDS", "WITHOUT_EXECUTORS", "ChaosPlan", "Journal", "Strike"]
