// New uploads, in the list of the publish page if it is open, else in the tray.

import { UNATTENDED } from "./session.js";
import { addRow, fileName, placeRows, rows } from "./upload_tray.js";

const DELAYS = [0, 1000, 3000]; // ms; the list may have an upload a little later than the event
const list = () => document.getElementById("unassigned");

const isListed = (serverFilename) => list()?.querySelector(`[data-upload="${serverFilename}"]`);

// Add the rows that are new: the others may have been filled in.
const reloadList = async () => {
  const answer = await fetch(location.href, { headers: { Accept: "text/html", ...UNATTENDED } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const loaded = page.getElementById("unassigned");
  const shown = list()?.querySelector("[data-publish-rows]");
  if (!loaded || !list()) return; // The session has ended, or the user has gone to another page.
  if (!shown) {
    list().replaceWith(loaded);
    htmx.process(loaded);
  }
  for (const row of [...loaded.querySelectorAll("[data-publish-rows] > *")].reverse()) {
    if (isListed(row.dataset.upload)) continue;
    shown.prepend(row);
    htmx.process(row);
  }
  placeRows();
};

const showUpload = async (serverFilename) => {
  for (const delay of DELAYS) {
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (!list() || isListed(serverFilename)) return;
    await reloadList();
  }
};

document.addEventListener("uploaded", ({ detail }) => showUpload(detail));

document.addEventListener("upload-finished", ({ detail: upload }) => {
  if (list()) showUpload(upload.server_filename);
  else if (!rows.has(upload.file_id)) addRow({ fileId: upload.file_id, name: fileName(upload.file_id), size: upload.size, serverFilename: upload.server_filename });
});

// Uploads of the time without a stream.
document.addEventListener("stream-open", () => list() && reloadList());
