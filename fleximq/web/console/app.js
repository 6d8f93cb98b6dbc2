// The frame around all pages: addresses, the session, the state of the broker, and the theme.

import * as api from "./api.js";
import { h, toast } from "./dom.js";
import { signInForm } from "./sign-in.js";

/** The pages: the first segment of the address, the words in the menu ("" for none), and the path that they read. */
const PAGES = [
  ["queues", "Queues", "queues"],
  ["queue", "", "queues"],
  ["schedules", "Schedules", "schedules"],
  ["letters", "Dead letters", "dead-letters"],
  ["overview", "Overview", "history"],
  ["topics", "Topics", "topics"],
  ["topic", "", "topics"],
  ["clients", "Clients", "clients"],
  ["client", "", "clients"],
  ["trace", "Trace", "trace"],
  ["rights", "Rights", "rights"],
  ["settings", "Settings", "settings"],
  ["journal", "Journal", "journal"],
  ["groups", "Groups", "groups"],
  ["cluster", "Cluster", "cluster"],
  ["warnings", "Warnings", "warnings"],
];
const OF = { queue: "queues", topic: "topics", client: "clients" };
const HEALTH_EVERY = 10000;

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const outage = document.getElementById("outage");
const health = document.getElementById("health");
const who = document.getElementById("who");

/** Show the page of the present address. */
async function route() {
  const segments = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const name = PAGES.some(([each]) => each === segments[0]) ? segments[0] : "queues";
  if (!api.session.isOpen) return main.replaceChildren(signInForm(begin));
  for (const each of nav.children) {
    if (each.dataset.page === (OF[name] ?? name)) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const { default: Shown } = await import(`./pages/${name}.js`);
  const tag = `fq-${name}`;
  if (!customElements.get(tag)) customElements.define(tag, Shown);
  const page = document.createElement(tag);
  page.segments = segments.slice(1);
  main.replaceChildren(page);
  document.title = `${[page.segments[0], PAGES.find(([each]) => each === name)[1]].filter(Boolean).join(" · ") || name} · FlexiMQ console`;
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Show the menu and the user. */
function frame() {
  const shown = PAGES.filter(([, words, path]) => words && api.session.isOpen && api.may(path));
  nav.replaceChildren(...shown.map(([name, words]) => h("a", { href: `#/${name}`, "data-page": name }, words)));
  const { principal, methods } = api.session;
  who.replaceChildren(...(api.session.isOpen && (principal || methods.length)
    ? [principal ?? "", h("button", { type: "button", class: "quiet", onclick: leave }, "Sign out")] : []));
  health.hidden = !api.session.isOpen;
}

async function leave() {
  try {
    await api.signOut();
  } catch (error) {
    toast(`You are not signed out: ${error.message}.`, true);
  }
}

/** Show the state of the broker in the corner. */
async function look() {
  if (document.hidden || !api.session.isOpen || !api.may("health")) return;
  try {
    const { status, reasons, notices } = await api.get("health");
    const number = notices?.length ?? 0;
    health.textContent = status !== "ok" ? "not ready" : number ? `${number} ${number === 1 ? "notice" : "notices"}` : "healthy";
    health.className = `pill ${status !== "ok" ? "bad" : number ? "warn" : "good"}`;
    health.title = [...(reasons ?? []), ...(notices ?? [])].join("\n");
  } catch {
    // The outage is shown, and a session's end too.
  }
}

async function begin() {
  try {
    await api.begin();
  } catch (error) {
    if (error.status !== 401) setTimeout(begin, 2000);
  }
  frame();
  route();
  look();
}

/** Show the symbol of the theme that a click chooses. */
function themes() {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const present = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const name = () => {
    const other = present() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "☾" : "☀";
    button.setAttribute("aria-label", `Use the ${other} theme`);
  };
  const kept = localStorage.getItem("fleximq-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = present() === "dark" ? "light" : "dark";
    localStorage.setItem("fleximq-theme", document.documentElement.dataset.theme);
    name();
    dispatchEvent(new Event("themed"));
  });
  dark.addEventListener("change", () => { name(); dispatchEvent(new Event("themed")); });
  name();
}

api.events.addEventListener("outage", ({ detail }) => {
  const words = `${detail.message[0].toUpperCase()}${detail.message.slice(1)}. This page tries again by itself; what it shows is old.`;
  if (outage.textContent !== words) outage.textContent = words; // or it would be read out again and again
  outage.hidden = false;
  document.body.classList.add("old");
  health.textContent = "no answer";
  health.className = "pill bad";
});
api.events.addEventListener("answered", () => {
  if (outage.hidden) return;
  outage.hidden = true;
  document.body.classList.remove("old");
  toast("The broker answers again.");
  look();
});
api.events.addEventListener("signed-out", begin); // to learn how to sign in
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); }); // no address
document.addEventListener("visibilitychange", look);
setInterval(look, HEALTH_EVERY);
themes();
begin();
