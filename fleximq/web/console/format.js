// Numbers, times and payloads in words.

import { h, press } from "./dom.js";

const _whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const _part = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const known = (show) => (value) => (value === null || value === undefined ? "–" : show(value));

/** A count: 12,345. */
export const count = known((value) => _whole.format(value));

/** A count with its noun: 1 job, 2 jobs. */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** A rate in a second: 12.3/s. */
export const rate = known((value) => `${value < 100 ? _part.format(value) : _whole.format(value)}/s`);

/** Yes or no. */
export const yes = (value) => (value ? "yes" : "no");

/** A principal. */
export const principal = (name) => name ?? "anonymous";

/** Bytes: 1.2 MB. */
export const bytes = known((value) => {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${_part.format(value / size)} ${unit}`;
  }
  return `${_whole.format(value)} B`;
});

/** A duration in seconds: 3 min. */
export const span = known((seconds) => {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size * 2) return `${_whole.format(Math.floor(seconds / size))} ${unit}`;
  }
  return `${seconds < 10 ? _part.format(seconds) : _whole.format(seconds)} s`;
});

/** The local time of a moment, in milliseconds since 1970: 2026-01-31 18:00:00. */
export const stamp = (moment) => new Date(moment - new Date(moment).getTimezoneOffset() * 60000).toISOString().slice(0, 19).replace("T", " ");

/** The time of day of a moment. */
export const clock = (moment) => stamp(moment).slice(11);

/** Moments on an axis: their times of day to the minute, with the day below where it changes. */
export const ticks = (moments) => moments.map(stamp).map((each, at, all) =>
  each.slice(11, 16) + (at && each.slice(0, 10) !== all[at - 1].slice(0, 10) ? `\n${each.slice(0, 10)}` : ""));

/** A moment with its zone. */
export function exact(moment) {
  const east = -new Date(moment).getTimezoneOffset();
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return `${stamp(moment)} ${east < 0 ? "-" : "+"}${two(Math.abs(east) / 60)}:${two(Math.abs(east) % 60)}`;
}

/** A time element: "5 min ago" or "in 2 h", with the exact time as its title. `milliseconds`: since 1970. */
export function time(milliseconds) {
  if (!milliseconds) return "–";
  const away = (milliseconds - Date.now()) / 1000;
  const words = Math.abs(away) < 2 ? "now" : away < 0 ? `${span(-away)} ago` : `in ${span(away)}`;
  return h("time", { datetime: new Date(milliseconds).toISOString(), title: exact(milliseconds) }, words);
}

/** A mark with words: kinds are good, warn, bad and plain. */
export const mark = (words, kind = "plain") => h("span", { class: `mark ${kind}` }, words);

/** A mark that is good or bad. */
export const verdict = (isGood, words) => mark(words, isGood ? "good" : "bad");

/** A link to a page of the console: link("orders", "queue", "orders"). */
export const link = (words, ...segments) => h("a", { href: `#/${segments.map(encodeURIComponent).join("/")}` }, words);

/** Returns a function that links a name to its page of a kind. */
export const linked = (page) => (name) => link(String(name), page, name);

/** Links to the pages of queues; null for none. */
export const queues = (names) => (names?.length ? h("span", {}, names.map((each) => [link(each, "queue", each), " "])) : null);

/** A client by its name or id. */
export const clientLink = ({ name, client_id: id }) => link(name || `client ${id}`, "client", id);

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
  const buttons = forms.map((each) => press(each === "value" ? form : each, () => show(each), { class: "form" }));
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
