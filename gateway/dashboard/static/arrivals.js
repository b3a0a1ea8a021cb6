// Uploads that were finished a moment ago: in the list of the page to publish where that is open, else in the tray.

import { UNATTENDED } from "./session.js";
import { fileName, show, rows } from "./uploads.js";

const AGAIN = [0, 1000, 3000]; // ms: the list may hear of an upload a little later than we do
const list = () => document.getElementById("arrived");

const renew = () =>
  htmx.ajax("GET", location.href, { source: list(), target: "#arrived", select: "#arrived", swap: "outerHTML", headers: UNATTENDED });

document.addEventListener("arrived", async ({ detail: upload }) => {
  if (!list()) {
    if (!rows.has(upload.file_id)) show({ fileId: upload.file_id, name: fileName(upload.file_id), size: upload.size, serverFilename: upload.server_filename });
    return;
  }
  for (const pause of AGAIN) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (!list()) return;
    await renew();
    if (list()?.querySelector(`[data-upload="${upload.server_filename}"]`)) return;
  }
});

// What came while nobody listened.
document.addEventListener("listening", () => list() && renew());
