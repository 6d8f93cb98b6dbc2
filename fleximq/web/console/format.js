// Numbers, times and payloads in words.

import { h } from "./dom.js";

const _whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const _part = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A count: 12,345. */
export const count = (value) => (value === null || value === undefined ? "–" : _whole.format(value));

/** A rate in a second: 12.3/s. */
export const rate = (value) => (value === null || value === undefined ? "–" : `${value < 100 ? _part.format(value) : _whole.format(value)}/s`);

/** Bytes: 1.2 MB. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${_part.format(value / size)} ${unit}`;
  }
  return `${_whole.format(value)} B`;
}

/** A duration in seconds: 3 min. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size * 2) return `${_whole.format(Math.floor(seconds / size))} ${unit}`;
  }
  return `${seconds < 10 ? _part.format(seconds) : _whole.format(seconds)} s`;
}

/** A time element: "5 min ago" or "in 2 h", with the exact time as its title. `milliseconds`: since 1970. */
export function time(milliseconds) {
  if (!milliseconds) return "–";
  const moment = new Date(milliseconds);
  const away = (milliseconds - Date.now()) / 1000;
  const words = Math.abs(away) < 2 ? "now" : away < 0 ? `${span(-away)} ago` : `in ${span(away)}`;
  return h("time", { datetime: moment.toISOString(), title: moment.toLocaleString() }, words);
}

/** A mark with words: kinds are good, warn, bad and plain. */
export const mark = (words, kind = "plain") => h("span", { class: `mark ${kind}` }, words);

/** A link to a page of the console: link("orders", "queue", "orders"). */
export const link = (words, ...segments) => h("a", { href: address(...segments) }, words);

/** The address of a page. */
export const address = (...segments) => `#/${segments.map(encodeURIComponent).join("/")}`;

const FORMS = ["value", "text", "hex"];

/** Show a payload, as the API describes it, decoded, with a choice of its forms. */
export function payload(row) {
  const raw = rawOf(row.payload ?? "");
  const form = row.form ?? "bytes";
  const forms = row.value === undefined || row.value === null && form === "bytes" ? FORMS.slice(1) : FORMS;
  const box = h("pre", { tabindex: 0 });
  const show = (wanted) => {
    box.textContent = wanted === "hex" ? hex(raw) : wanted === "text" ? new TextDecoder().decode(raw) : shown(row.value);
    for (const each of buttons) each.setAttribute("aria-pressed", each.textContent === (wanted === "value" ? form : wanted));
  };
  const buttons = forms.map((each) =>
    h("button", { type: "button", class: "form", onclick: () => show(each) }, each === "value" ? form : each));
  show(forms[0]);
  return h("div", { class: "payload" }, h("div", { class: "forms", role: "group", "aria-label": "Show as" }, buttons, h("small", {}, bytes(raw.length))), box);
}

/** One line about a payload. */
export function brief(row) {
  const words = row.value === undefined || row.value === null
    ? new TextDecoder().decode(rawOf((row.payload ?? "").slice(0, 400)))
    : typeof row.value === "string" ? row.value : JSON.stringify(row.value);
  return words.length > 120 ? `${words.slice(0, 120)}…` : words;
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function rawOf(base64) {
  try {
    return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}

function hex(raw) {
  const lines = [];
  for (let at = 0; at < raw.length && at < 65536; at += 16) {
    const row = raw.subarray(at, at + 16);
    const digits = Array.from(row, (each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(row, (each) => (each > 31 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
