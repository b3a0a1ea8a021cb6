// The end of the session, which all windows share, and the warning before it.
// A session ends `data-session-seconds-left` seconds after the page was loaded, or after `data-session-idle-timeout`
// seconds without use. Automatic requests have the header of UNATTENDED and do not count as use.

import { renewSession, sessionOf } from "./operations.js";

export const UNATTENDED = { "X-Unattended": "true" };
const WARNING = 300; // seconds before the end, at most a quarter of the idle timeout

let used = Date.now(); // ms, as all times here

const deadlines = () => {
  const { sessionEnds, sessionIdleTimeout } = document.body.dataset;
  return { end: Number(sessionEnds), idleEnd: used + sessionIdleTimeout * 1000, warning: Math.min(WARNING, sessionIdleTimeout / 4) * 1000 };
};

export const hasEnded = () => {
  const { end, idleEnd } = deadlines();
  return Date.now() >= Math.min(end, idleEnd);
};

// Offer to stay signed in. After the end of the session only a new sign-in helps.
const showWarning = () => {
  const place = document.getElementById("session-ends");
  if (!place) return;
  const { end, idleEnd, warning } = deadlines();
  const canStay = idleEnd < end && !hasEnded();
  place.querySelector("[data-stay]").hidden = !canStay;
  place.querySelector("[data-sign-in]").hidden = canStay;
  place.hidden = Date.now() < Math.min(end, idleEnd) - warning;
};

const adopt = (session) => {
  Object.assign(document.body.dataset, session);
  for (const field of document.getElementsByName("csrf_token")) field.value = session.csrfToken;
  document.dispatchEvent(new Event("session"));
};

// A newly loaded page has the newest session. The other windows take it over and dispatch `session`.
const windows = new BroadcastChannel(`session ${document.body.dataset.home}`);
windows.onmessage = ({ data }) => {
  used = Math.max(used, data.used);
  if (data.session) {
    adopt(data.session);
  }
  showWarning();
};

const recordUse = (message = {}) => {
  used = Date.now();
  windows.postMessage({ used, ...message });
  showWarning();
};

// Take over the session of a page that was loaded after a sign-in.
export const startSession = (dataset) => {
  const session = sessionOf(dataset);
  adopt(session);
  recordUse({ session });
};

const session = sessionOf(document.body.dataset);
Object.assign(document.body.dataset, session);
recordUse({ session });

// Whether a response proves that the session was used.
const wasUsed = (status) => status >= 200 && status < 500 && status !== 401;

document.addEventListener("htmx:afterRequest", ({ detail: { xhr, requestConfig } }) => {
  if (wasUsed(xhr.status) && !Object.keys(UNATTENDED).some((name) => name in requestConfig.headers)) recordUse();
});
document.addEventListener("operation-response", ({ detail }) => wasUsed(detail) && recordUse());

document.addEventListener("click", async (event) => {
  const { target } = event;
  if (target.closest("#session-ends [data-sign-in]")) {
    event.preventDefault();
    return (await import("./sign_in_dialog.js")).signIn();
  }
  if (!target.closest("[data-stay]")) return;
  if (await renewSession()) return recordUse();
  used = 0;
  showWarning();
});

setInterval(showWarning, 15_000);
document.addEventListener("htmx:load", showWarning);
