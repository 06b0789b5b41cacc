// The explorable timeline. It shows what `data` holds for the switches, the fault and the place, and decides nothing.

function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The records that a reader sees: boxes for the eye, words for the ear. One that is seen again is marked by its edge too.
function records(seen) {
  const words = seen.map((record, n) => (seen.indexOf(record) < n ? `${record} again` : `${record}`)).join(", ");
  const boxes = made("span", { "aria-hidden": "true", class: "eo-records" });
  seen.forEach((record, n) => {
    const again = seen.indexOf(record) < n;
    boxes.append(made("span", { class: again ? "eo-record eo-again" : "eo-record" }, `${record}`));
  });
  if (!seen.length) boxes.append("nothing");
  return [boxes, made("span", { class: "eo-hidden" }, words || "nothing")];
}

function render({ model, el }) {
  const data = model.get("data");
  const id = `eo-${Math.random().toString(36).slice(2, 10)}`; // another one for each timeline on a page
  const root = made("div", { class: "eo-timeline eo-explorable", role: "group", "aria-label": "Timeline of two batches" });
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys: arrows would go from cell to cell

  // The switches, and which fault it is
  const boxes = data.switches.map((each, n) => {
    const box = made("input", { type: "checkbox", id: `${id}-${each.key}`, "aria-describedby": `${id}-${each.key}-hint` });
    box.addEventListener("change", () => {
      const on = [...model.get("switches")];
      on[n] = box.checked ? "1" : "0";
      choose({ switches: on.join("") });
    });
    return box;
  });
  const switches = made("fieldset", { class: "eo-switches" }, made("legend", {}, "Switched on"));
  data.switches.forEach((each, n) => {
    if (!model.get("shown").includes(each.key)) return;
    const label = made("label", { for: boxes[n].id }, each.label);
    switches.append(made("div", { class: "eo-switch" }, boxes[n], label, made("span", { id: `${id}-${each.key}-hint` }, each.hint)));
  });
  const radios = data.faults.map((each) => {
    const radio = made("input", { type: "radio", name: `${id}-fault`, id: `${id}-${each.key}` });
    radio.addEventListener("change", () => choose({ fault: each.key }));
    return radio;
  });
  const faults = made("fieldset", { class: "eo-faults" }, made("legend", {}, "What goes wrong"));
  data.faults.forEach((each, n) => faults.append(made("label", {}, radios[n], ` ${each.label}`)));

  // The track: the steps of the batches, and the handle that is dragged along them
  const steps = [];
  const rows = []; // of each batch: beside each other, or stacked on a narrow screen
  const track = made("div", { class: "eo-track" });
  for (let batch = 0; batch < data.batches; batch++) {
    const row = made("div", { class: "eo-batch" }, made("div", { class: "eo-name" }, `batch ${batch}`));
    const cells = made("div", { class: "eo-steps", "aria-hidden": "true" });
    for (const station of data.stations) {
      const step = made("div", { class: "eo-step" }, station.name);
      if (station.file) step.append(made("div", { class: "eo-file" }, `${station.file}${batch}`));
      steps.push([step, station.name]);
      cells.append(step);
    }
    row.append(cells);
    rows.push(row);
    track.append(row);
  }
  const handle = made("div", {
    class: "eo-handle",
    role: "slider",
    tabindex: "0",
    "aria-label": "Where it goes wrong",
    "aria-orientation": "horizontal",
    "aria-valuemin": "0",
    "aria-valuemax": `${data.places.length - 1}`,
  });
  track.append(handle);
  const where = made("p", { class: "eo-where" });

  // What comes of it
  const sights = ["Then a reader sees", "In the end a reader sees"].map((title) => {
    const seen = made("div");
    const verdict = made("p", { class: "eo-verdict" });
    return { seen, verdict, part: made("div", { class: "eo-sight", role: "group", "aria-label": title }, made("div", { class: "eo-title" }, title), seen, verdict) };
  });
  const why = made("p", { class: "eo-why" });
  const list = made("ol", { class: "eo-list" });
  const live = made("p", { class: "eo-hidden", "aria-live": "polite" });
  root.append(
    made("div", { class: "eo-controls" }, switches, faults),
    track,
    where,
    made("div", { class: "eo-sights" }, ...sights.map((each) => each.part)),
    why,
    made("div", { class: "eo-title" }, "What happens, step by step"),
    list,
    live,
  );

  function choose(changes) {
    for (const [key, value] of Object.entries(changes)) model.set(key, value);
    model.save_changes();
    show();
  }

  // How wide a step is: one that the setting does not have is a sliver, so that its place can still be reached.
  const widths = () => {
    const { absent } = data.settings[model.get("switches")];
    return data.stations.map((station) => (absent.includes(station.name) ? 0.3 : 1));
  };

  // Where a place is in the row of its batch: from 0 to 1
  function across(place) {
    const wide = widths();
    const taken = place.at * steps.length - place.batch * wide.length; // steps of this batch, perhaps and a half
    const sum = (part) => part.reduce((total, each) => total + each, 0);
    return (sum(wide.slice(0, Math.floor(taken))) + (taken % 1) * (wide[Math.floor(taken)] ?? 0)) / sum(wide);
  }

  function show() {
    const [key, fault, place] = [model.get("switches"), model.get("fault"), model.get("place")];
    const setting = data.settings[key];
    const [atFault, inTheEnd, because, course] = data.outcomes[data.cases[fault][key][place]];
    const text = (number) => data.texts[number];
    boxes.forEach((box, n) => {
      box.checked = setting.on[n] === "1";
      box.disabled = setting.idle.includes(data.switches[n].key);
    });
    radios.forEach((radio, n) => (radio.checked = data.faults[n].key === fault));
    const here = data.places[place];
    const what = data.faults.find((each) => each.key === fault);
    steps.forEach(([step, station], n) => {
      step.classList.toggle("eo-absent", setting.absent.includes(station));
      step.classList.toggle("eo-undone", what.stops && here.at <= n / steps.length);
    });
    track.style.setProperty("--eo-columns", widths().map((each) => `minmax(0, ${each}fr)`).join(" "));
    handle.style.setProperty("--eo-batch", here.batch);
    handle.style.setProperty("--eo-across", across(here));
    handle.dataset.fault = fault;
    handle.setAttribute("aria-valuenow", place);
    handle.setAttribute("aria-valuetext", here.name);
    where.textContent = `${here.name}: ${what.label}`;
    [atFault, inTheEnd].forEach(([seen, words, wrong], n) => {
      sights[n].seen.replaceChildren(...records(seen));
      sights[n].verdict.textContent = text(words);
      sights[n].part.classList.toggle("eo-wrong", wrong);
    });
    why.textContent = text(because);
    list.replaceChildren(...course.map(([words, seen]) => {
      const item = made("li", {}, text(words));
      if (seen) item.append(made("div", { class: "eo-then" }, "a reader sees ", ...records(seen)));
      return item;
    }));
    live.textContent = `${here.name}. ${text(inTheEnd[1])}. ${text(because)}`;
  }

  // The handle goes to the place that is nearest to the pointer, or one on with a key
  const last = data.places.length - 1;
  const go = (place) => choose({ place: Math.min(last, Math.max(0, place)) });
  function follow(event) {
    const frames = rows.map((row) => row.getBoundingClientRect());
    const far = data.places.map((each) => {
      const { left, width, top, bottom } = frames[each.batch];
      const beside = Math.max(top - event.clientY, event.clientY - bottom, 0); // of the other row
      return Math.abs(left + across(each) * width - event.clientX) + 10 * beside;
    });
    const nearest = far.indexOf(Math.min(...far));
    if (nearest !== model.get("place")) go(nearest);
  }
  const drag = new AbortController(); // removes the listeners of the page when the widget is removed
  let dragged = false;
  track.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    dragged = true;
    track.setPointerCapture(event.pointerId); // outside the window too
    handle.focus({ preventScroll: true });
    event.preventDefault(); // no text is selected on the way
    follow(event);
  });
  const move = (event) => {
    dragged &&= event.buttons > 0; // the button may have been released outside the window
    if (dragged) follow(event);
  };
  const release = () => (dragged = false);
  document.addEventListener("pointermove", move, { signal: drag.signal });
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, release, { signal: drag.signal });
  handle.addEventListener("keydown", (event) => {
    const batch = data.places.length / data.batches;
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: batch, PageDown: -batch, Home: -last, End: last };
    if (!(event.key in by) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    go(model.get("place") + by[event.key]);
  });

  const changes = ["switches", "fault", "place"].map((key) => `change:${key}`);
  changes.forEach((change) => model.on(change, show));
  show();
  el.append(root);
  return () => {
    drag.abort();
    changes.forEach((change) => model.off(change, show));
  };
}

export default { render };
