// A question: its options, or a field for a number, and a line for the reply. What is right, Python says.
function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function render({ model, el }) {
  const name = `question-${Math.random().toString(36).slice(2)}`;
  const options = model.get("options");
  const radio = (value) => made("input", { type: "radio", name, value });
  const field = made("input", { placeholder: "a number, then Enter", "aria-label": model.get("question") });
  const inputs = options.length ? options.map(radio) : [field];
  const labelled = options.map((option, n) => made("label", {}, inputs[n], " ", made("span", {}, option)));
  const status = made("p", { role: "status" });
  const legend = made("legend", {}, model.get("question"));
  const form = made("fieldset", { class: "question" }, legend, ...(options.length ? labelled : inputs), status);
  form.dataset.lmSuppressShortcuts = "true"; // JupyterLab's own keys: arrows would go from cell to cell
  form.addEventListener("keydown", (event) => event.stopPropagation()); // at a key the notebook takes the focus back
  form.addEventListener("change", (event) => {
    model.set("said", event.target.value);
    model.save_changes();
  });

  function show() {
    if (!options.length) field.value = model.get("said");
    inputs.forEach((input) => {
      if (options.length) input.checked = input.value === model.get("said");
      input.disabled = model.get("closed");
    });
    status.textContent = model.get("reply");
    status.dataset.right = model.get("right");
  }
  const changes = ["said", "reply", "right", "closed"].map((key) => `change:${key}`);
  changes.forEach((change) => model.on(change, show));
  show();
  el.append(form);
  return () => changes.forEach((change) => model.off(change, show));
}

export default { render };
