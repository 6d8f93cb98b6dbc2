// One topic: who listens, its messages as they arrive and from the journal, and a form to publish one.

import { get, ticket } from "../api.js";
import { choice, field, h, labelled, toast } from "../dom.js";
import { brief, bytes, count, link, payload, time } from "../format.js";
import { facts, heading, Page, section, tell } from "../page.js";
import { table } from "../table.js";

const READ = 50;
/** Messages that the list of live ones holds. */
const LIVE = 200;

export default class Topic extends Page {
  build() {
    const [name] = this.segments;
    this.name = name;
    this.facts = facts();
    this.listening = table("Subscribers", [
      { title: "Client", show: (row) => link(row.name || `client ${row.client_id}`, "client", row.client_id) },
      { title: "Dialect", show: (row) => row.dialect, minor: true },
      { title: "Principal", show: (row) => row.principal ?? "anonymous", minor: true },
      { title: "Subscription", show: (row) => h("code", {}, row.subscription) },
    ], (row) => `${row.client_id} ${row.subscription}`, "Nobody listens. Try: ", h("code", {}, `fleximq sub '${name}'`));
    this.live = h("div", { class: "rows live", tabindex: 0, role: "region", "aria-label": "Live messages" });
    this.switch = h("button", { type: "button", onclick: () => (this.client ? this.#stop() : this.#listen()) }, "Show messages as they arrive");
    this.liveWords = h("span", { class: "hint", "aria-live": "polite" });
    this.append(heading(name), h("p", {}, link("All topics", "topics")), this.facts,
      section("Live", h("div", { class: "actions" }, this.switch, this.liveWords), this.live),
      this.#journal(), this.#publishing(), section("Subscribers", this.listening));
  }

  leave() {
    this.#stop();
  }

  load() {
    return get("topics/detail", { topic: this.name });
  }

  show(row) {
    const { stored } = row;
    tell(this.facts, [
      ["Subscribers", count(row.subscribers)], ["Published", count(row.published)], ["Durable", row.durable ? "yes" : "no"],
      ["Stored messages", stored && `${count(stored.messages)}, ${bytes(stored.bytes)}`],
      ["Offsets", stored && `${count(stored.first)} to ${count(stored.last)}`],
      ["Oldest stored", stored && time(stored.first_time)], ["Newest stored", stored && time(stored.last_time)],
      ["Queues", row.queues.length ? h("span", {}, row.queues.map((each) => [link(each.topic ?? each, "queue", each.topic ?? each), " "])) : null],
    ]);
    this.listening.rows = row.listening;
    this.stored.hidden = !row.durable && !stored;
  }

  // -- live --------------------------------------------------------------------------------------

  async #listen() {
    this.switch.textContent = "Stop";
    this.liveWords.textContent = "connecting …";
    try {
      const { connect } = await import("/fleximq.js");
      const token = await ticket();
      this.client = await connect(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`, {
        ...(token === undefined ? {} : { token: ticket }), name: "", timeout: 10,
      });
      let number = 0;
      await this.client.subscribe(this.name, {}, (message) => {
        number += 1;
        this.liveWords.textContent = `${count(number)} so far; the newest ${LIVE} are shown`;
        if (this.live.children.length >= LIVE) this.live.lastElementChild.remove();
        this.live.prepend(this.#message(described(message)));
      });
      this.liveWords.textContent = "waiting for the next message";
    } catch (error) {
      toast(`Messages cannot be shown as they arrive: ${error.message}.`, true);
      this.#stop();
    }
  }

  #stop() {
    this.client?.close();
    this.client = undefined;
    this.switch.textContent = "Show messages as they arrive";
    this.liveWords.textContent = "";
  }

  // -- the journal -------------------------------------------------------------------------------

  #journal() {
    this.from = choice("start", [["last", "the last ones"], ["first", "the first one"], ["offset", "an offset"], ["time", "a time"]], "last");
    this.offset = field("offset", { type: "number", min: 0 });
    this.moment = field("time", { type: "datetime-local", step: 1 });
    this.contains = field("contains", { placeholder: "any" });
    this.rows = h("div", { class: "rows" });
    this.words = h("p", { class: "hint", "aria-live": "polite" });
    const older = h("button", { type: "button", class: "quiet", onclick: () => this.#read({ before: this.answer?.before }) }, "Older");
    const newer = h("button", { type: "button", class: "quiet", onclick: () => this.#read({ from: this.answer?.next }) }, "Newer");
    const offset = labelled("Offset", this.offset), moment = labelled("Time", this.moment);
    const shown = () => { offset.hidden = this.from.value !== "offset"; moment.hidden = this.from.value !== "time"; };
    this.from.addEventListener("change", shown);
    shown();
    this.stored = section("From the journal", h("form", {
      class: "filter", onsubmit: (event) => { event.preventDefault(); this.#read(this.#start()); },
    }, labelled("Start at", this.from), offset, moment, labelled("Content contains", this.contains), h("button", {}, "Read")), this.rows,
    h("nav", { class: "paging", "aria-label": "Pages of the journal" }, older, newer), this.words);
    return this.stored;
  }

  #start() {
    const { value } = this.from;
    if (value === "offset") return { from: this.offset.value || 0 };
    if (value === "time") return { from: this.moment.value ? new Date(this.moment.value).toISOString() : "first" };
    return value === "first" ? { from: "first" } : {};
  }

  async #read(start) {
    try {
      const answer = await get("topics/messages", { topic: this.name, limit: READ, contains: this.contains.value, ...start });
      this.answer = answer;
      this.rows.replaceChildren(...answer.messages.map((each) => this.#message(each)));
      this.words.textContent = answer.messages.length ? "" : answer.complete ? "There is no such message." : "None among those that were searched; go on with Older or Newer.";
    } catch (error) {
      toast(`Refused: ${error.message}.`, true);
    }
  }

  // -- publishing --------------------------------------------------------------------------------

  #publishing() {
    const text = h("textarea", { name: "body", spellcheck: "false" }, '{"hello": "world"}');
    const kind = choice("kind", [["application/json", "JSON"], ["text/plain", "Text"]], "application/json");
    const key = field("key", { placeholder: "none" });
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const token = await ticket();
          const response = await fetch(`/topics/${encodeURIComponent(this.name)}${key.value ? `?${new URLSearchParams({ key: key.value })}` : ""}`, {
            method: "POST", body: text.value, credentials: "omit",
            headers: { "Content-Type": kind.value, ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }) },
          });
          const answer = await response.json();
          if (response.ok) toast(answer.offset === undefined ? "Published." : `Published at offset ${count(answer.offset)}.`);
          else toast(`Refused: ${answer.error}.`, true);
        } catch (error) {
          toast(`Not published: ${error.message}.`, true);
        }
      },
    }, labelled("Message", text), h("div", { class: "filter" }, labelled("Content", kind), labelled("Key", key), h("button", { class: "main" }, "Publish")));
    return section("Publish", h("details", {}, h("summary", {}, "A message to this topic"), form));
  }

  #message(row) {
    const list = facts();
    tell(list, [
      ["Offset", row.offset === undefined ? null : count(row.offset)], ["Time", row.time && time(row.time)],
      ["Publisher", row.publisher && link(row.publisher, "client", row.publisher_id)], ["Dialect", row.dialect],
      ...Object.entries(row.header ?? {}).filter(([name]) => name !== "topic").map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)]),
    ]);
    return h("details", {}, h("summary", {}, h("code", {}, row.offset === undefined ? new Date(row.time).toLocaleTimeString() : count(row.offset)), " ", brief(row)), list, payload(row));
  }
}

/** A live message, as the API describes those of the journal. */
function described(message) {
  const raw = message.payload;
  let text = "";
  for (let at = 0; at < raw.length; at += 8192) text += String.fromCharCode(...raw.subarray(at, at + 8192));
  const row = { time: Date.now(), header: message.header, publisher: `client ${message.publisher}`, publisher_id: message.publisher, payload: btoa(text), form: "messagepack" };
  try {
    row.value = JSON.parse(JSON.stringify(message.value, (name, value) => (typeof value === "bigint" ? String(value) : value)));
  } catch {
    row.form = "bytes"; // it is no MessagePack
  }
  return row;
}
