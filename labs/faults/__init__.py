"""What breaks the pipeline: faults at named points, processes to kill, the supervisor that restarts them."""

from labs.faults.fault import Fault, InjectedCrash, armed
from labs.faults.job import JobFailed, JobProcess
from labs.faults.lost_acknowledgement import LostAcknowledgement
from labs.faults.proxy import Proxy, Request, proxied_broker
from labs.faults.supervisor import Attempt, GaveUp, Supervisor

__all__ = [
    "Attempt",
    "Fault",
    "GaveUp",
    "InjectedCrash",
    "JobFailed",
    "JobProcess",
    "LostAcknowledgement",
    "Proxy",
    "Request",
    "Supervisor",
    "armed",
    "proxied_broker",
]
