// Whether a principal may do something, and the rule that decides.

import { choice, field, filterForm, get, h, heading, labelled, Page, verdict, yes } from "../page.js";

const ACTIONS = ["publish", "subscribe", "consume", "request", "notify", "broadcast", "read", "progress", "serve", "admin"];

export default class Rights extends Page {
  every = 3600000;

  build() {
    this.answer = h("div", { "aria-live": "polite" });
    this.append(heading("Rights"), h("p", { class: "hint" }, "The answer is that of the permissions in effect; nothing is tried."),
      filterForm((question) => this.#ask(question),
        labelled("May", field("principal", { required: true, placeholder: "alice, or anonymous" })),
        labelled("do", choice("action", ACTIONS.map((each) => [each, each]), "publish")),
        labelled("with", field("name", { required: true, placeholder: "orders.eu" })),
        h("button", { class: "main" }, "Ask")), this.answer);
  }

  async #ask(question) {
    try {
      const { permitted, words, rule } = await get("rights", question);
      this.answer.replaceChildren(h("p", {}, verdict(permitted, yes(permitted)), ` ${words}.`),
        rule ? h("pre", {}, `[${rule.table}]\n${rule.deny ? "deny: " : ""}${rule.pattern}`) : "");
    } catch (error) {
      this.answer.replaceChildren(h("p", { class: "problem" }, `${error.message}.`));
    }
  }
}
