// The frame around all pages: addresses, the session, the state of the broker, and the theme.

import * as api from "./api.js";
import { h, press, toast } from "./dom.js";
import { counted } from "./format.js";
import { signInForm } from "./sign-in.js";

/** The pages: the first segment of the address, and if the menu has them, the words there and the path that they read. */
const PAGES = Object.fromEntries([
  ["queues", "Queues", "queues"], ["queue"], ["schedules", "Schedules", "schedules"], ["letters", "Dead letters", "dead-letters"],
  ["overview", "Overview", "history"], ["topics", "Topics", "topics"], ["topic"], ["clients", "Clients", "clients"], ["client"],
  ["trace", "Trace", "trace"], ["rights", "Rights", "rights"], ["settings", "Settings", "settings"], ["journal", "Journal", "journal"],
  ["groups", "Groups", "groups"], ["cluster", "Cluster", "cluster"], ["warnings", "Warnings", "warnings"],
].map(([name, words, path]) => [name, { words, path }]));
const OF = { queue: "queues", topic: "topics", client: "clients" };
const HEALTH_EVERY = 10000;

const [main, nav, outage, health, who, theme] = ["main", "nav", "outage", "health", "who", "theme"].map((id) => document.getElementById(id));

/** Show the page of the present address. */
async function route() {
  const segments = location.hash.replace(/^#\/?/, "").split("/").map(decode);
  const name = Object.hasOwn(PAGES, segments[0]) ? segments[0] : "queues";
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
  document.title = `${[page.segments[0], PAGES[name].words].filter(Boolean).join(" · ") || name} · FlexiMQ console`;
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
  const shown = Object.entries(PAGES).filter(([, { words, path }]) => words && api.session.isOpen && api.may(path));
  nav.replaceChildren(...shown.map(([name, { words }]) => h("a", { href: `#/${name}`, "data-page": name }, words)));
  const { principal, methods } = api.session;
  who.replaceChildren(...(api.session.isOpen && (principal || methods.length)
    ? [principal ?? "", press("Sign out", leave, { class: "quiet" })] : []));
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
    health.textContent = status !== "ok" ? "not ready" : number ? counted(number, "notice") : "healthy";
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

/** Use a theme, and show the symbol of the one that a click chooses. */
function themes() {
  const root = document.documentElement.dataset, dark = matchMedia("(prefers-color-scheme: dark)");
  const other = () => ((root.theme ?? (dark.matches ? "dark" : "light")) === "dark" ? "light" : "dark");
  const show = () => {
    theme.textContent = other() === "dark" ? "☾" : "☀";
    theme.setAttribute("aria-label", `Use the ${other()} theme`);
    dispatchEvent(new Event("themed"));
  };
  const kept = localStorage.getItem("fleximq-theme");
  if (kept === "dark" || kept === "light") root.theme = kept;
  theme.addEventListener("click", () => {
    root.theme = other();
    localStorage.setItem("fleximq-theme", root.theme);
    show();
  });
  dark.addEventListener("change", show);
  show();
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
