// The explorable barrier. It shows what `data` holds for the rule and the step, and decides nothing.

function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function render({ model, el }) {
  const data = model.get("data");
  const id = `eo-${Math.random().toString(36).slice(2, 10)}`; // another one for each widget on a page
  const root = made("div", { class: "eo-barrier eo-explorable", role: "group", "aria-label": "A barrier on its way" });
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys: arrows would go from cell to cell

  const rules = made("fieldset", {}, made("legend", {}, "At a barrier, a task"));
  const radios = Object.keys(data).map((rule, n) => {
    const radio = made("input", { type: "radio", name: `${id}-rule`, id: `${id}-${n}`, value: rule });
    radio.addEventListener("change", () => choose({ rule, step: Math.min(model.get("step"), last(rule)) }));
    rules.append(made("label", { for: radio.id }, radio, ` ${rule}`));
    return radio;
  });
  const slider = made("input", { type: "range", min: "0", step: "1", id: `${id}-step` });
  slider.addEventListener("input", () => choose({ step: Number(slider.value) }));
  const picture = made("img", { alt: "" });
  const words = made("p", { class: "eo-said", "aria-live": "polite" });
  const label = made("label", { for: slider.id }, "Drag: what is delivered");
  root.append(rules, made("div", { class: "eo-frame" }, picture), label, slider, words);

  const last = (rule) => data[rule].pictures.length - 1;

  function choose(changes) {
    for (const [key, value] of Object.entries(changes)) model.set(key, value);
    model.save_changes();
    show();
  }

  function show() {
    const [rule, step] = [model.get("rule"), model.get("step")];
    const shown = data[rule];
    radios.forEach((radio) => (radio.checked = radio.value === rule));
    slider.max = `${last(rule)}`;
    slider.value = `${step}`;
    slider.setAttribute("aria-valuetext", `${step} of ${last(rule)} deliveries`);
    picture.src = `data:image/svg+xml;utf8,${encodeURIComponent(shown.pictures[step])}`;
    words.textContent = shown.words[step];
    words.classList.toggle("eo-wrong", shown.wrong[step]);
  }

  const changes = ["rule", "step"].map((key) => `change:${key}`);
  changes.forEach((change) => model.on(change, show));
  show();
  el.append(root);
  return () => changes.forEach((change) => model.off(change, show));
}

export default { render };
