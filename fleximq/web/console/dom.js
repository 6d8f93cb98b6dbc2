// Makes elements. Names, topics and payloads are data: they become text, never markup.

/**
 * Return a new element. Attributes: `on...` adds a listener, `class` and others are set as attributes, true sets an
 * empty one, and false, null or undefined none. Children are elements, texts, or lists of them; null is left out.
 */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value") element.value = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

/** Return a button. */
export const press = (words, onclick, more) => h("button", { type: "button", onclick, ...more }, words);

/** Show a short sentence for some seconds; an error stays longer. */
export function toast(words, isError = false) {
  const shown = h("p", { class: isError ? "toast bad" : "toast" }, words);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), isError ? 12000 : 5000);
}

/** Return the outcome of an act; an error is told, and gives undefined. */
export async function attempt(act) {
  try {
    return await act();
  } catch (error) {
    toast(`Refused: ${error.message}.`, true);
  }
}

/**
 * Ask before a change, and return the fields of the dialog by name, or null if the answer was no. `typed`: a text that
 * must be typed first. `deletes`: the change cannot be undone.
 */
export function confirmed({ title, words, action, typed, deletes, fields }) {
  return new Promise((resolve) => {
    const input = typed && h("input", { autocomplete: "off", spellcheck: "false", oninput: () => { yes.disabled = input.value !== typed; } });
    const yes = h("button", { class: deletes ? "danger" : "main", value: "yes", disabled: Boolean(typed) }, action);
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title), words && h("p", {}, words), fields,
      typed && h("label", {}, "Type ", h("code", {}, typed), " to confirm", input),
      h("div", { class: "actions" }, press("Cancel", () => dialog.close("no"), { class: "quiet" }), yes));
    const dialog = h("dialog", {
      "aria-labelledby": "dialog-title",
      onclose: () => { resolve(dialog.returnValue === "yes" ? filled(form) : null); dialog.remove(); },
    }, form);
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Return a labelled field for a form. */
export const labelled = (words, input) => h("label", {}, h("span", {}, words), input);

/** Return a text field with its name, and further attributes. */
export const field = (name, attributes = {}) => h("input", { name, autocomplete: "off", spellcheck: "false", ...attributes });

/** Return a field that filters a list. */
export const search = (words, oninput) => field("contains", { type: "search", placeholder: words, "aria-label": words, oninput });

/** Return a field for a time. A browser's own one has the order of day and month of the browser's language. */
export const momentField = (name) => field(name, {
  placeholder: "2026-01-31 18:00", title: `Local time (${Intl.DateTimeFormat().resolvedOptions().timeZone})`,
  oninput: ({ target }) => target.setCustomValidity(target.value && !momentOf(target.value) ? "Write a time as 2026-01-31 18:00." : ""),
});

/** Return milliseconds since 1970 of the text of such a field; NaN for other texts. */
export function momentOf(text) {
  const [, day, clock = "00:00"] = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d)?))?$/.exec(text.trim()) ?? [];
  return Date.parse(`${day}T${clock}`);
}

/** Return a selection of `[value, words]` pairs. */
export const choice = (name, options, chosen) =>
  h("select", { name }, options.map(([value, words]) => h("option", { value, selected: value === chosen }, words)));

/** Return a form in one line, whose button calls `send` with its fields. */
export const filterForm = (send, ...children) =>
  h("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); send(filled(event.target)); } }, children);

/** Return the fields of a form that are not empty, by name. */
export const filled = (form) => Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
