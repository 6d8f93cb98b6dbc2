// Makes elements. Names, topics and payloads are data: they become text, never markup.

/**
 * Return a new element. Attributes: `on...` adds a listener, `class` and others are set as attributes, true sets an
 * empty one, and false, null or undefined none. Children are elements, texts, or lists of them; null is left out.
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** Show a short sentence for some seconds; an error stays longer. */
export function toast(words, isError = false) {
  const shown = h("p", { class: isError ? "toast bad" : "toast" }, words);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), isError ? 12000 : 5000);
}

/**
 * Ask before a change, and return whether the answer was yes. `typed`: a text that must be typed first.
 */
export function confirmed(title, words, action, typed = null) {
  return new Promise((resolve) => {
    const field = typed === null ? null : h("input", { autocomplete: "off", spellcheck: "false" });
    const yes = h("button", { class: "danger", value: "yes", disabled: typed !== null }, action);
    field?.addEventListener("input", () => { yes.disabled = field.value !== typed; });
    const dialog = h(
      "dialog", { "aria-labelledby": "dialog-title" },
      h("form", { method: "dialog" },
        h("h2", { id: "dialog-title" }, title),
        h("p", {}, words),
        field && h("label", {}, "Type ", h("code", {}, typed), " to confirm", field),
        h("div", { class: "actions" }, h("button", { value: "no", class: "quiet", type: "button", onclick: () => dialog.close("no") }, "Cancel"), yes)),
    );
    dialog.addEventListener("close", () => { resolve(dialog.returnValue === "yes"); dialog.remove(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Return a labelled field for a form. */
export const labelled = (words, input) => h("label", {}, h("span", {}, words), input);

/** Return a text field with its name, and further attributes. */
export const field = (name, attributes = {}) => h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes });

/** Return a selection of `[value, words]` pairs. */
export const choice = (name, options, chosen) =>
  h("select", { name }, options.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));

/** Return the fields of a form that are not empty, by name. */
export const filled = (form) => Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
