// Search and questions. Everything is on the page already: nothing is fetched, and nothing leaves the browser.
"use strict";

const top_ = document.body.dataset.top;
const words = document.getElementById("words");
const found = document.getElementById("found");

// --- search: every word must occur; a heading counts more than text, an earlier page more than a later one
function search(text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return [];
  const scored = [];
  for (const entry of INDEX) {
    const title = `${entry.page} ${entry.heading}`.toLowerCase();
    const body = entry.text.toLowerCase();
    if (!wanted.every((word) => title.includes(word) || body.includes(word))) continue;
    const score = wanted.reduce((sum, word) =>
      sum + (entry.heading.toLowerCase().includes(word) ? 10 : 0) + Math.min(body.split(word).length - 1, 5), 0);
    scored.push({ entry, score });
  }
  return scored.sort((a, b) => b.score - a.score).slice(0, 20).map((each) => each.entry);
}

function excerpt(entry, word) {
  const at = entry.text.toLowerCase().indexOf(word);
  const line = document.createElement("div");
  if (at < 0) {
    line.textContent = entry.text.slice(0, 160);
    return line;
  }
  const mark = document.createElement("mark");
  mark.textContent = entry.text.slice(at, at + word.length);
  line.append((at > 60 ? "…" : "") + entry.text.slice(Math.max(0, at - 60), at), mark,
    entry.text.slice(at + word.length, at + word.length + 100) + "…");
  return line;
}

function show() {
  const text = words.value.trim();
  found.hidden = !text;
  found.replaceChildren();
  if (!text) return;
  const entries = search(text);
  const count = document.createElement("p");
  count.textContent = entries.length ? `${entries.length} places` : `Nothing is said of “${text}”.`;
  const list = document.createElement("ol");
  for (const entry of entries) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = top_ + entry.url;
    link.textContent = entry.heading || entry.page;
    const where = document.createElement("span");
    where.className = "where";
    where.textContent = entry.heading === entry.page ? "" : ` · ${entry.page}`;
    item.append(link, where, excerpt(entry, text.toLowerCase().split(/\s+/)[0]));
    list.append(item);
  }
  found.append(count, list);
}

words.addEventListener("input", show);
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
  found.querySelector("a")?.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(event.target.tagName)) {
    event.preventDefault();
    words.focus();
  } else if (event.key === "Escape" && !found.hidden) {
    words.value = "";
    show();
    words.focus();
  }
});

// --- the list of pages: the page that is read is in its middle, also in the drawer
const pages = document.getElementById("pages");
function centre() {
  const here = pages.querySelector("[aria-current]");
  if (here) pages.scrollTop = here.offsetTop - (pages.clientHeight - here.offsetHeight) / 2;
}
centre();
pages.addEventListener("toggle", centre);

// --- answers: kept in this browser, so that a reader who comes back finds them, and in the list how far each page is
const KEPT = "exactly-once-lab";
const here = document.body.dataset.page;
const answers = kept(); // page -> number of the question -> answer
const forget = document.getElementById("forget");

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {}; // this browser keeps nothing
  }
}
function note(number, value) {
  (answers[here] ??= {})[number] = value;
  try {
    localStorage.setItem(KEPT, JSON.stringify(answers));
  } catch {} // then the answers last as long as the page
  showProgress();
}
function showProgress() {
  for (const line of pages.querySelectorAll(".answered")) {
    const { page, questions } = line.dataset;
    const number = Math.min(Object.keys(answers[page] ?? {}).length, questions);
    line.textContent = number ? `${number} of ${questions} questions` : "";
  }
  forget.hidden = !Object.keys(answers).length;
}
forget.addEventListener("click", () => {
  localStorage.removeItem(KEPT);
  location.reload();
});
showProgress();

// --- questions: a prediction is noted, and answered where the lesson compares it; an exit ticket is marked at once
function reply(line, text, right) {
  line.textContent = text;
  line.dataset.right = right;
}
for (const question of document.querySelectorAll("fieldset.question")) {
  const { number, answer } = question.dataset;
  const said = JSON.parse(question.dataset.said);
  function take(value) {
    const line = question.querySelector("[role=status]");
    if (value in said) reply(line, said[value], value === answer);
    else line.textContent = `Noted: ${value}. Read on.`;
    for (const compared of document.querySelectorAll(`.compared[data-of="${number}"]`)) {
      reply(compared, JSON.parse(compared.dataset.said)[value], value === answer);
    }
    for (const fold of document.querySelectorAll(`details.answer[data-of="${number}"]`)) fold.open = true;
  }
  question.addEventListener("change", ({ target }) => {
    take(target.value);
    note(number, target.value);
  });
  const before = [...question.querySelectorAll("input")].find((each) => each.value === answers[here]?.[number]);
  if (before) {
    before.checked = true;
    take(before.value);
  }
}

// --- code: a button that copies it
for (const code of document.querySelectorAll(".input pre, .text_cell_render pre")) {
  if (!navigator.clipboard) break; // a browser gives it only to pages that nobody can have changed on their way
  const frame = document.createElement("div");
  const button = document.createElement("button");
  frame.className = "copyable";
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy this code");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent.trimEnd());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  code.replaceWith(frame);
  frame.append(code, button);
}
