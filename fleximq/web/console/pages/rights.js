// Whether a principal may do something, and the rule that decides.

import { get } from "../api.js";
import { choice, field, filled, h, labelled } from "../dom.js";
import { mark } from "../format.js";
import { heading, Page } from "../page.js";

const ACTIONS = ["publish", "subscribe", "consume", "request", "notify", "broadcast", "read", "progress", "serve", "admin"];

export default class Rights extends Page {
  build() {
    this.answer = h("div", { "aria-live": "polite" });
    this.form = h("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); this.#ask(); } },
      labelled("May", field("principal", { required: true, placeholder: "alice, or anonymous" })),
      labelled("do", choice("action", ACTIONS.map((each) => [each, each]), "publish")),
      labelled("with", field("name", { required: true, placeholder: "orders.eu" })),
      h("button", { class: "main" }, "Ask"));
    this.append(heading("Rights"), h("p", { class: "hint" }, "The answer is that of the permissions in effect; nothing is tried."), this.form, this.answer);
  }

  get every() {
    return 3600000;
  }

  async #ask() {
    try {
      const { permitted, words, rule } = await get("rights", filled(this.form));
      this.answer.replaceChildren(h("p", {}, mark(permitted ? "yes" : "no", permitted ? "good" : "bad"), ` ${words}.`),
        rule && h("pre", {}, `[${rule.table}]\n${rule.deny ? "deny: " : ""}${rule.pattern}`) || "");
    } catch (error) {
      this.answer.replaceChildren(h("p", { class: "problem" }, `${error.message}.`));
    }
  }
}
