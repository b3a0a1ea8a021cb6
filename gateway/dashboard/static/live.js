// Uploads that are finished, whoever sent them, as they come: dispatched as `arrived` on the document.
// Only a window that is seen listens: browsers have six connections to an origin, for all its windows.

import { hasEnded } from "./session.js";

const AGAIN = 30_000; // ms until the next try where the repository would not have us

let source = null;
let timer = 0;

const listen = () => {
  clearTimeout(timer);
  if (document.hidden || hasEnded()) {
    source?.close();
    source = null;
    return;
  }
  if (source && source.readyState !== EventSource.CLOSED) return;
  source = new EventSource(`${document.body.dataset.home}/live`);
  source.addEventListener("open", () => document.dispatchEvent(new CustomEvent("listening")));
  source.addEventListener("upload.finished", ({ data }) =>
    document.dispatchEvent(new CustomEvent("arrived", { detail: JSON.parse(data) })),
  );
  // A connection that breaks is made anew by the browser; one that was refused is not.
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) timer = setTimeout(listen, AGAIN);
  });
};

document.addEventListener("visibilitychange", listen);
document.addEventListener("session", listen);
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", listen);
