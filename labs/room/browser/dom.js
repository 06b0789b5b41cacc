// The operations room. It shows Python's state in Python's words, and decides nothing.
// This file has the helpers of all parts. A DOM node is updated in place, so that it keeps the focus while it is used.

function made(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawn(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function say(element, text) {
  if (element.textContent !== `${text}`) element.textContent = text;
}

function mark(element, name, value) {
  if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, value);
}

// Fills values into "{delivered} of {expected}"; a value that is null becomes a dash.
function filled(template, values) {
  return template.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "–");
}

// Makes one child for each item, in order. A child stays while there is an item with its key.
function keep(parent, items, keyOf, make, update) {
  const kept = (parent.kept ??= new Map());
  const wanted = new Set(items.map(keyOf));
  for (const [key, child] of kept) {
    if (wanted.has(key)) continue;
    child.remove();
    kept.delete(key);
  }
  items.forEach((item, n) => {
    const key = keyOf(item);
    if (!kept.has(key)) kept.set(key, make(item));
    const child = kept.get(key);
    if (parent.children[n] !== child) parent.insertBefore(child, parent.children[n] ?? null);
    update(child, item);
  });
}

const decimal = (number) => (Math.round(number * 10) / 10).toFixed(1);
const rounded = (number) => `${Math.round(number)}`;

// A part of the view: a titled group.
function part(name, title, ...children) {
  const heading = made("div", { class: "eo-title" }, title);
  return made("div", { class: `eo-part eo-${name}`, role: "group", "aria-label": title }, heading, ...children);
}

// A disabled button keeps its place and the focus, but does nothing. A button that moves while the mouse is down still
// gets the click.
function onPress(button, act) {
  button.addEventListener("click", (event) => {
    if (button.getAttribute("aria-disabled") !== "true") act(event);
  });
  button.addEventListener("pointerdown", (event) => button.setPointerCapture(event.pointerId));
}

// A button that gives an order; of several orders, the one that is for its target's state. A double click is one press.
function orderButton(room, names, argumentsOf = () => ({}), label = "") {
  const button = made("button", { type: "button", class: "eo-order", "data-order": names[0] });
  Object.assign(button, { names, label });
  onPress(button, (event) => {
    if (event.detail < 2) room.send({ do: button.dataset.order, ...argumentsOf() });
  });
  button.addEventListener("keydown", (event) => {
    if (event.repeat) event.preventDefault(); // a key that is held down is one order, too
  });
  return button;
}

// Enables the button if its order is possible, and its target, if it has one, is in a state that the order is for.
function allow(room, button, state, target = null) {
  const { orders, texts } = room.words;
  const fits = (name) => !orders[name].states.length || orders[name].states.includes(target?.state);
  const name = button.names.find(fits) ?? button.dataset.order;
  const order = orders[name];
  const possible = fits(name) && state.possible.includes(button.dataset.at ? `${name} ${button.dataset.at}` : name);
  const hint = button.label ? texts[`${button.label}_hint`] : filled(order.hint, target ?? {});
  const said = possible ? hint : filled(texts.impossible, { hint });
  const label = button.label ? texts[button.label] : order.label;
  say(button, label);
  mark(button, "data-order", name);
  mark(button, "aria-disabled", !possible);
  mark(button, "title", said);
  mark(button, "aria-label", `${label}: ${said}`);
}
