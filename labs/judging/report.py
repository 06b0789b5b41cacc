"""A judgement as JUnit XML and as a page that needs no other file: the verdict, a timeline, and what was found."""

from __future__ import annotations

import shlex
from html import escape
from xml.etree import ElementTree

from labs.equipment.plain_text import plain
from labs.evidence.auditor.verdict import Verdict
from labs.judging.judgement import NO_HEADERS, PROVES_NOTHING, Judgement, findings, run_in_words
from labs.judging.session import JobRun

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
        verdict = Verdict.VALID if found.control_is_doubled else Verdict.UNKNOWN
        _case(suite, "the control is doubled", found.control, verdict, PROVES_NOTHING)
    for count, of in (("tests", "testcase"), ("failures", ".//failure"), ("errors", ".//error")):
        suite.set(count, str(len(suite.findall(of))))
    return ElementTree.tostring(suite, "utf-8", xml_declaration=True).decode() + "\n"


def _case(suite: ElementTree.Element, name: str, run: JobRun, verdict: Verdict, reason: str) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname="judge", name=name, time=f"{run.seconds:.1f}")
    words = "\n".join(map(plain, run_in_words(run)))
    if verdict is Verdict.VALID:
        ElementTree.SubElement(case, "system-out").text = words
    else:
        kind = "failure" if verdict is Verdict.INVALID else "error"
        ElementTree.SubElement(case, kind, message=plain(reason or str(verdict))).text = words


def html(found: Judgement) -> str:
    """Return a page that loads nothing."""
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
        told = "<br>".join([f"<i>{_text(meaning)}</i>", *map(_text, examples)])
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
