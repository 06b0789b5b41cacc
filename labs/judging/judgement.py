"""The judge's verdict, from the audits of a job and of its control.

A job is valid only if its own audit is valid, and the control, if there is one, was doubled by the same strikes. If a
job that is known to be wrong passes, the strikes have proved nothing about the other job.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labs.evidence.auditor.verdict import Anomaly, Audit, Verdict
from labs.judging.session import JobRun
from labs.judging.workloads import MEANINGS

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}
PROVES_NOTHING = "the control was not doubled, so these strikes prove nothing about the job"
CONTROL_LOST = "it lost results, so it is not at least once: let it commit its offsets after its writes"
NO_CONTROL = "there was no control, so it is not known whether these strikes can cause duplicates"
NO_STRIKES = "nothing was struck"
NO_HEADERS = "not judged: whether readers saw records of aborted transactions, which a job's records do not name"


@dataclass(frozen=True)
class Judgement:
    """The outcome for one job: its run, and that of its control, if any."""

    workload: str
    seed: int
    faults: Sequence[str]
    job: JobRun
    control: JobRun | None = None

    @property
    def verdict(self) -> Verdict:
        if self.job.audit.valid and self.control and not self.control_is_doubled:
            return Verdict.UNKNOWN
        return self.job.audit.verdict

    @property
    def valid(self) -> bool:
        return self.verdict is Verdict.VALID

    @property
    def control_is_doubled(self) -> bool:
        return self.control is not None and self.control.audit.duplicated > 0

    @property
    def exit_code(self) -> int:
        """0 is valid, 1 invalid, 2 unknown."""
        return EXIT_CODES[self.verdict]

    @property
    def reason(self) -> str:
        """The reason for the verdict and its limitations, in words."""
        told = [self.job.audit.reason]
        if not self.job.audit.valid:
            pass  # what was found is evidence, whatever the control says
        elif not self.job.strikes:
            told.append(NO_STRIKES)
        elif not self.control:
            told.append(NO_CONTROL)
        elif not self.control_is_doubled:
            why = self.control.audit.reason or (CONTROL_LOST if self.control.audit.lost else "")
            told.append(f"{PROVES_NOTHING} ({why})" if why else PROVES_NOTHING)
        return "; ".join(filter(None, told))

    def __bool__(self) -> bool:
        raise TypeError("a judgement is neither true nor false: ask judgement.valid, or compare judgement.verdict")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "verdict": str(self.verdict),
            "reason": self.reason,
            "workload": self.workload,
            "seed": self.seed,
            "faults": list(self.faults),
            "job": self.job.as_dict(),
            "control": self.control and self.control.as_dict(),
        }

    def __str__(self) -> str:
        lines = [f"judgement: {self.verdict}" + (f" ({self.reason})" if self.reason else "")]
        for name, run in (("job", self.job), ("control, which must be doubled", self.control)):
            if run:
                lines += ["", f"{name}: {shlex.join(run.command)}", *run_in_words(run)]
                lines += [f"  {run.audit.reason}"] if run is self.control and run.audit.reason else []
        return "\n".join([*lines, "", NO_HEADERS])


def run_in_words(run: JobRun) -> list[str]:
    """Return the lines about one run: its numbers, what was found, and what struck it."""
    audit = run.audit
    lines = [
        f"  {audit.verdict}: {audit.expected:,} results expected, {audit.observed:,} records read, "
        f"{audit.lost:,} lost, {audit.duplicated:,} duplicated"
    ]
    for anomaly, meaning, examples in findings(audit):
        lines += [f"  {anomaly.name} {audit.counts[anomaly]:,}: {meaning}", *(f"    {each}" for each in examples)]
    lines += [f"  at {strike.seconds:6.1f} s  {strike.kind}: {strike.met}" for strike in run.strikes]
    return lines + [f"  remark: {remark}" for remark in run.remarks]


def findings(audit: Audit) -> list[tuple[Anomaly, str, list[str]]]:
    """Return each anomaly that was found, its meaning, and the first examples in words."""
    return [
        (anomaly, MEANINGS.get(anomaly, anomaly.meaning), list(audit.examples.get(anomaly, ())))
        for anomaly in Anomaly
        if audit.counts[anomaly]
    ]
