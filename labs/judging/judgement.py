"""The judge's verdict, from the audits of a job and of its control; in words, as JSON, as JUnit XML, and as a page.

A job is valid only if its own audit is valid, and if the same strikes duplicated results of the control (if there is
one). The control is known to be at least once only. If the strikes duplicate nothing in it, they prove nothing about
the job.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from xml.etree import ElementTree

from labs.equipment.plain_text import plain
from labs.evidence.auditor.anomalies import SHOWN, Anomaly, Audit, Verdict
from labs.judging.job_session import JobRun
from labs.judging.workloads import MEANINGS

EXIT_CODES = {Verdict.VALID: 0, Verdict.INVALID: 1, Verdict.UNKNOWN: 2}
PROVES_NOTHING = "the control was not doubled, so these strikes prove nothing about the job"
CONTROL_LOST = "it lost results, so it is not at least once: let it commit its offsets after its writes"
NO_CONTROL = "there was no control, so it is not known whether these strikes can cause duplicates"
NO_STRIKES = "no strike met the job at its work, so nothing was tried"
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
            pass  # the audit has its own reason; the control matters only for a valid audit
        elif all(strike.missed for strike in self.job.strikes):
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
        lines += [
            f"  {anomaly.name} {audit.counts[anomaly]:,}: {meaning}",
            *(f"    {each}" for each in examples[:SHOWN]),
        ]
    lines += [f"  at {strike.seconds:6.1f} s  {strike.kind}: {strike.met}" for strike in run.strikes]
    return lines + [f"  remark: {remark}" for remark in run.remarks]


def findings(audit: Audit) -> list[tuple[Anomaly, str, list[str]]]:
    """Return each anomaly that was found, its meaning, and the first examples in words."""
    return [
        (anomaly, MEANINGS.get(anomaly, anomaly.meaning), list(audit.examples.get(anomaly, ())))
        for anomaly in Anomaly
        if audit.counts[anomaly]
    ]


WIDTH, HEIGHT, LEFT, BELOW = 860, 190, 60, 40  # of a timeline, in pixels
BLUE, RED, GREY = "#0072B2", "#A84300", "#595959"

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 56em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse } td, th { text-align: left; vertical-align: top; padding: .2em 1em .2em 0 }
.valid { color: #00654A } .invalid { color: #A84300 } .unknown { color: #595959 }
svg { max-width: 100%; height: auto } code { overflow-wrap: anywhere }
"""


def junit(found: Judgement) -> str:
    """Return JUnit XML: a test for the job and one for its control. Invalid is a failure, unknown an error."""
    suite = ElementTree.Element("testsuite", name="exactly once")
    _case(suite, "the job is exactly once", found.job, found.verdict, found.reason)
    if found.control:
        judged = (Verdict.VALID, "") if found.control_is_doubled else (Verdict.UNKNOWN, PROVES_NOTHING)
        _case(suite, "the control is doubled", found.control, *judged)
    for count, of in (("tests", "testcase"), ("failures", ".//failure"), ("errors", ".//error")):
        suite.set(count, str(len(suite.findall(of))))
    return ElementTree.tostring(suite, "utf-8", xml_declaration=True).decode() + "\n"


def _case(suite: ElementTree.Element, name: str, run: JobRun, verdict: Verdict, reason: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname="judge", name=name, time=f"{run.seconds:.1f}")
    words = "\n".join(map(plain, run_in_words(run)))
    if verdict is Verdict.VALID:
        ElementTree.SubElement(case, "system-out").text = "\n".join(filter(None, (plain(reason), words)))
    else:
        kind = "failure" if verdict is Verdict.INVALID else "error"
        ElementTree.SubElement(case, kind, message=plain(reason or str(verdict))).text = words


def html(found: Judgement) -> str:
    """Return an HTML page, which loads no other file."""
    runs = [_run("The job", found.job)] + ([_run("The control", found.control)] if found.control else [])
    title = (
        f"The job is {found.verdict}" if found.verdict is not Verdict.UNKNOWN else "It is unknown if the job is valid"
    )
    facts = f"Workload {found.workload}, faults {', '.join(found.faults)}, seed {found.seed}."
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            f'<h1 class="{found.verdict}">{escape(title)}</h1>',
            f"<p>{_text(facts)}</p>",
            _note("Note", found.reason),
            *runs,
            f"<p>{_text(NO_HEADERS)}.</p></body></html>\n",
        ]
    )


def _run(title: str, run: JobRun) -> str:
    audit = run.audit
    numbers = {
        "results expected": audit.expected,
        "records read": audit.observed,
        "lost": audit.lost,
        "duplicated": audit.duplicated,
    }
    rows = [f"<tr><td>{name}</td><td>{number:,}</td></tr>" for name, number in numbers.items()]
    for anomaly, meaning, examples in findings(audit):
        told = "<br>".join([f"<i>{_text(meaning)}</i>", *map(_text, examples[:SHOWN])])
        if more := examples[SHOWN:]:
            told += f"<details><summary>{len(more)} more</summary>{'<br>'.join(map(_text, more))}</details>"
        rows.append(f"<tr><th>{anomaly.name} {audit.counts[anomaly]:,}</th><td>{told}</td></tr>")
    strikes = [
        f"<tr><td>{number}</td><td>{strike.seconds:.1f} s</td><td>{strike.kind}</td><td>{_text(strike.met)}</td></tr>"
        for number, strike in enumerate(run.strikes, start=1)
    ]
    return "\n".join(
        [
            f"<h2>{title}: {audit.verdict}</h2><p><code>{_text(shlex.join(run.command))}</code></p>",
            _note("Note", audit.reason),
            f"<table>{''.join(rows)}</table>",
            timeline(run),
            "<table><tr><th>strike</th><th>at</th><th>kind</th><th>what the job met</th></tr>",
            f"{''.join(strikes)}</table>",
            *(_note("Remark", remark) for remark in run.remarks),
        ]
    )


def timeline(run: JobRun) -> str:
    """Draw the committed results over time, and a line for each strike, as SVG."""
    seconds, most = max(run.seconds, 0.1), max((count for _, count in run.samples), default=0)
    bottom = HEIGHT - BELOW

    def x(second: float) -> float:
        return round(LEFT + (WIDTH - LEFT - 10) * second / seconds, 1)

    points = " ".join(f"{x(at)},{round(bottom - (bottom - 20) * count / max(most, 1), 1)}" for at, count in run.samples)
    words = f"{most:,} committed results within {seconds:.0f} s; {len(run.strikes)} strikes"
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{escape(words)}" font-size="13">',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 10}" y2="{bottom}" stroke="{GREY}"/>',
        f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
        f'<text x="{LEFT - 8}" y="24" text-anchor="end" fill="{BLUE}">{most:,}</text>',
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 6}" text-anchor="end" fill="{GREY}">{seconds:.0f} s</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 6}" fill="{GREY}">committed results over time; red: strikes</text>',
    ]
    for number, strike in enumerate(run.strikes, start=1):
        at = x(strike.seconds)
        parts.append(f'<line x1="{at}" y1="20" x2="{at}" y2="{bottom}" stroke="{RED}" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="{at}" y="14" text-anchor="middle" fill="{RED}">{number}</text>')
    return "\n".join([*parts, "</svg>"])


def _note(title: str, words: str) -> str:
    return f"<p>{title}: {_text(words)}</p>" if words else ""


def _text(words: str) -> str:
    return escape(plain(words))
