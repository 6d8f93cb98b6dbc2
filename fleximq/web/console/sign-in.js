// The page that asks for credentials.

import { session, signIn } from "./api.js";
import { field, h, labelled } from "./dom.js";

const WORDS = { password: "Name and password", token: "Token", api_key: "API key" };

/** Return the form; `done` is called after the sign-in. */
export function signInForm(done) {
  const methods = session.methods;
  if (methods.length === 0) return h("p", { class: "empty" }, "The broker has not answered yet. This page tries again by itself.");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const inputs = h("div");
  let chosen = methods[0];
  const show = () => inputs.replaceChildren(...(chosen === "password"
    ? [labelled("Name", field("name", { autocomplete: "username", required: true })),
      labelled("Password", field("password", { type: "password", autocomplete: "current-password", required: true }))]
    : [labelled(WORDS[chosen], field(chosen, { type: "password", required: true }))]));
  show();
  const kinds = methods.length < 2 ? null : h("fieldset", {}, h("legend", {}, "Sign in with"), methods.map((each) =>
    h("label", { class: "inline" }, h("input", { type: "radio", name: "method", value: each, checked: each === chosen, onchange: () => { chosen = each; show(); } }), WORDS[each])));
  const send = h("button", { class: "main" }, "Sign in");
  return h("form", {
    class: "sign-in",
    onsubmit: async (event) => {
      event.preventDefault();
      const { method, ...credentials } = Object.fromEntries(new FormData(event.target));
      send.disabled = true;
      try {
        await signIn(credentials);
        done();
      } catch (error) {
        problem.textContent = error.status === 401 ? "These credentials are not valid." : `The sign-in failed: ${error.message}.`;
        problem.hidden = false;
      } finally {
        send.disabled = false;
      }
    },
  }, h("h1", {}, "Sign in"), problem, kinds, inputs, send);
}
