// Finished uploads of the tenant, dispatched as `upload-finished` on the document.
// Only visible windows listen, because a browser has six connections to an origin for all its windows.

import { hasEnded } from "./session.js";

const RETRY_DELAY = 30_000; // ms after a rejected connection

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
  source.addEventListener("open", () => document.dispatchEvent(new CustomEvent("stream-open")));
  source.addEventListener("upload.finished", ({ data }) =>
    document.dispatchEvent(new CustomEvent("upload-finished", { detail: JSON.parse(data) })),
  );
  // The browser reconnects after a broken connection, but not after a rejected one.
  source.addEventListener("error", () => {
    if (source?.readyState === EventSource.CLOSED) timer = setTimeout(listen, RETRY_DELAY);
  });
};

document.addEventListener("visibilitychange", listen);
document.addEventListener("session", listen);
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", listen);
