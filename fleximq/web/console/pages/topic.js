// One topic: who listens, its messages as they arrive and from the journal, and a form to publish one.

import { attempt, brief, bytes, choice, clientLink, clock, count, entries, facts, field, filterForm, get, h, heading, labelled, link, message, momentField, momentOf, Page, press, principal, queues, section, table, tell, ticket, time, toast, yes } from "../page.js";

const READ = 50;
/** Messages that the list of live ones holds. */
const LIVE = 200;
const ARRIVING = "Show messages as they arrive";

export default class Topic extends Page {
  build() {
    const [name] = this.segments;
    this.name = name;
    this.facts = facts();
    this.listening = table("Subscribers", [
      ["Client", clientLink],
      ["Dialect", "dialect", null, "minor"],
      ["Principal", "principal", principal, "minor"],
      ["Subscription", "subscription", (words) => h("code", {}, words)],
    ], (row) => `${row.client_id} ${row.subscription}`, "Nobody listens. Try: ", h("code", {}, `fleximq sub '${name}'`));
    this.live = h("div", { class: "rows live", tabindex: 0, role: "region", "aria-label": "Live messages" });
    this.switch = press(ARRIVING, () => (this.client ? this.leave() : this.#listen()));
    this.liveWords = h("span", { class: "hint", "aria-live": "polite" });
    this.append(heading(name), h("p", {}, link("All topics", "topics")), this.facts,
      section("Live", h("div", { class: "actions" }, this.switch, this.liveWords), this.live),
      this.#journal(), this.#publishing(), section("Subscribers", this.listening));
  }

  leave() {
    this.client?.close();
    this.client = undefined;
    this.switch.textContent = ARRIVING;
    this.liveWords.textContent = "";
  }

  load() {
    return get("topics/detail", { topic: this.name });
  }

  show(row) {
    const { stored } = row;
    tell(this.facts, [
      ["Subscribers", count(row.subscribers)], ["Published", count(row.published)], ["Durable", yes(row.durable)],
      ["Stored messages", stored && `${count(stored.messages)}, ${bytes(stored.bytes)}`],
      ["Offsets", stored && `${count(stored.first)} to ${count(stored.last)}`],
      ["Oldest stored", stored && time(stored.first_time)], ["Newest stored", stored && time(stored.last_time)],
      ["Queues", queues(row.queues)],
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
      await this.client.subscribe(this.name, {}, (received) => {
        number += 1;
        this.liveWords.textContent = `${count(number)} so far; the newest ${LIVE} are shown`;
        if (this.live.children.length >= LIVE) this.live.lastElementChild.remove();
        this.live.prepend(shown(described(received)));
      });
      this.liveWords.textContent = "waiting for the next message";
    } catch (error) {
      toast(`Messages cannot be shown as they arrive: ${error.message}.`, true);
      this.leave();
    }
  }

  // -- the journal -------------------------------------------------------------------------------

  #journal() {
    const from = choice("start", [["last", "the last ones"], ["first", "the first one"], ["offset", "an offset"], ["time", "a time"]], "last");
    const offset = labelled("Offset", field("offset", { type: "number", min: 0 })), moment = labelled("Time", momentField("time"));
    const choose = () => { offset.hidden = from.value !== "offset"; moment.hidden = from.value !== "time"; };
    from.addEventListener("change", choose);
    choose();
    this.rows = h("div", { class: "rows" });
    this.words = h("p", { class: "hint", "aria-live": "polite" });
    const form = filterForm((filled) => {
      this.contains = filled.contains;
      const found = momentOf(filled.time ?? "");
      this.#read({
        last: {}, first: { from: "first" }, offset: { from: filled.offset ?? 0 },
        time: { from: found ? new Date(found).toISOString() : "first" },
      }[filled.start]);
    }, labelled("Start at", from), offset, moment, labelled("Content contains", field("contains", { placeholder: "any" })), h("button", {}, "Read"));
    const turn = (words, start) => press(words, () => this.#read(start()), { class: "quiet" });
    this.stored = section("From the journal", form, this.rows, h("nav", { class: "paging", "aria-label": "Pages of the journal" },
      turn("Older", () => ({ before: this.answer?.before })), turn("Newer", () => ({ from: this.answer?.next }))), this.words);
    return this.stored;
  }

  async #read(start) {
    const answer = await attempt(() => get("topics/messages", { topic: this.name, limit: READ, contains: this.contains, ...start }));
    if (!answer) return;
    this.answer = answer;
    this.rows.replaceChildren(...answer.messages.map(shown));
    this.words.textContent = answer.messages.length ? "" : answer.complete ? "There is no such message." : "None among those that were searched; go on with Older or Newer.";
  }

  // -- publishing --------------------------------------------------------------------------------

  #publishing() {
    const text = h("textarea", { name: "body", spellcheck: "false" }, '{"hello": "world"}');
    const form = filterForm((filled) => this.#publish(filled),
      labelled("Message", text), labelled("Content", choice("kind", [["application/json", "JSON"], ["text/plain", "Text"]], "application/json")),
      labelled("Key", field("key", { placeholder: "none" })), h("button", { class: "main" }, "Publish"));
    text.parentElement.className = "whole";
    return section("Publish", h("details", {}, h("summary", {}, "A message to this topic"), form));
  }

  async #publish({ body = "", kind, key }) {
    try {
      const token = await ticket();
      const response = await fetch(`/topics/${encodeURIComponent(this.name)}${key ? `?${new URLSearchParams({ key })}` : ""}`, {
        method: "POST", body, credentials: "omit",
        headers: { "Content-Type": kind, ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }) },
      });
      const answer = await response.json();
      if (!response.ok) toast(`Refused: ${answer.error}.`, true);
      else toast(answer.offset === undefined ? "Published." : `Published at offset ${count(answer.offset)}.`);
    } catch (error) {
      toast(`Not published: ${error.message}.`, true);
    }
  }
}

function shown(row) {
  const offset = row.offset === undefined ? null : count(row.offset);
  return message(offset ?? clock(row.time), brief(row), [
    ["Offset", offset], ["Time", row.time && time(row.time)],
    ["Publisher", row.publisher && link(row.publisher, "client", row.publisher_id)], ["Dialect", row.dialect],
    ...entries(row.header, "topic"),
  ], row);
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
