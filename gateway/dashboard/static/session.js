// The session of this page, which all its windows share: when it ends, and the warning before that.
// It ends for good `data-session-lasts` seconds after the page came, and before if nobody uses it for `data-session-idle`
// seconds. What a page asks of its own accord is no use of it, and says so by the header of UNATTENDED.

import { renewed, sessionOf } from "./asking.js";

export const UNATTENDED = { "X-Unattended": "true" };
const WARNING = 300; // seconds before the end, and at most a quarter of those that it may be idle

let used = Date.now(); // ms, as all times here: a page that is loaded is a use

const lasting = () => {
  const { sessionEnds, sessionIdle } = document.body.dataset;
  return { forGood: Number(sessionEnds), unused: used + sessionIdle * 1000, warning: Math.min(WARNING, sessionIdle / 4) * 1000 };
};

export const hasEnded = () => {
  const { forGood, unused } = lasting();
  return Date.now() >= Math.min(forGood, unused);
};

// Whoever is here can stay; where the session ends for good, or has ended, there is another to begin.
const warn = () => {
  const place = document.getElementById("session-ends");
  if (!place) return;
  const { forGood, unused, warning } = lasting();
  const canStay = unused < forGood && !hasEnded();
  place.querySelector("[data-stay]").hidden = !canStay;
  place.querySelector("[data-sign-in]").hidden = canStay;
  place.hidden = Date.now() < Math.min(forGood, unused) - warning;
};

// A page that is loaded is one of the newest session: those of other windows go on in it, and say so as `session`.
const windows = new BroadcastChannel(`session ${document.body.dataset.home}`);
windows.onmessage = ({ data }) => {
  used = Math.max(used, data.used);
  if (data.session) {
    Object.assign(document.body.dataset, data.session);
    for (const field of document.getElementsByName("csrf_token")) field.value = data.session.csrfToken; // to sign out of it
    document.dispatchEvent(new Event("session"));
  }
  warn();
};

const use = (more = {}) => {
  used = Date.now();
  windows.postMessage({ used, ...more });
  warn();
};

const session = sessionOf(document.body.dataset);
Object.assign(document.body.dataset, session);
use({ session });

// Answers that show that a session was there: of none, or where nobody could look, it is another.
const wasUsed = (status) => status >= 200 && status < 500 && status !== 401;

document.addEventListener("htmx:afterRequest", ({ detail: { xhr, requestConfig } }) => {
  if (wasUsed(xhr.status) && !Object.keys(UNATTENDED).some((name) => name in requestConfig.headers)) use();
});
document.addEventListener("asked", ({ detail }) => wasUsed(detail) && use());

document.addEventListener("click", async ({ target }) => {
  if (!target.closest("[data-stay]")) return;
  if (await renewed()) return use();
  used = 0;
  warn();
});

setInterval(warn, 15_000);
document.addEventListener("htmx:load", warn);
