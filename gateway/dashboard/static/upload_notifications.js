// New uploads, in the list of the publish page if it is open, else in the tray.

import { UNATTENDED } from "./session.js";
import { addRow, fileName, rows } from "./upload_tray.js";

const DELAYS = [0, 1000, 3000]; // ms; the list may have an upload a little later than the event
const list = () => document.getElementById("unassigned");

// A row about which a dialog asks stays until the answer.
const reloadList = async () => {
  const dialog = document.querySelector("dialog[open]");
  if (dialog) await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (list()) await htmx.ajax("GET", location.href, { source: list(), target: "#unassigned", select: "#unassigned", swap: "outerHTML", headers: UNATTENDED });
};

document.addEventListener("upload-finished", async ({ detail: upload }) => {
  if (!list()) {
    if (!rows.has(upload.file_id)) addRow({ fileId: upload.file_id, name: fileName(upload.file_id), size: upload.size, serverFilename: upload.server_filename });
    return;
  }
  for (const delay of DELAYS) {
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (!list()) return;
    await reloadList();
    if (list()?.querySelector(`[data-upload="${upload.server_filename}"]`)) return;
  }
});

// Uploads of the time without a stream.
document.addEventListener("stream-open", () => list() && reloadList());
