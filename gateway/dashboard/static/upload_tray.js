// The uploads of this window, shown on the publish page if it is open, else in the tray. The browser stores unfinished
// uploads: after a reload, the user selects the same file again to resume.

import { navigate, showToast } from "./page.js";
import { duration, size } from "./formatting.js";
import { isSameFile, removeUpload, saveUpload, unfinishedUploads } from "./unfinished_uploads.js";
import { cancelTransfer, Transfer } from "./transfer.js";

const MAX_PARALLEL = 2; // uploads
const home = document.body.dataset.home;
const address = `${home}/operations/upload_package_version`;
// By X-File-ID: { upload, transfer, element, state, cancelling }. A row without a transfer is an unfinished upload of an
// earlier page, or a finished upload of another client, which has a `serverFilename`.
export const rows = new Map();

// The X-File-ID of a file: its name, and a unique suffix. `crypto.randomUUID` exists over TLS only.
const newId = (name) => {
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, "").replace(/ß/g, "ss").replace(/ẞ/g, "SS"); // letters without accents
  const readable = plain.slice(-80).replace(/[^A-Za-z0-9._+=@-]+/g, "-").replace(/-+(?=\.)|^[^A-Za-z0-9]+/g, "");
  const mark = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return readable ? `${readable}~${mark}` : mark;
};
// Same as the filter `file_name` of the templates.
export const fileName = (fileId) => fileId.replace(/~[0-9a-f]{32}$/, "");

// The uploads of this window, by their `server_filename`.
const OWN = "own uploads";
const MAX_OWN = 100;
const own = () => (sessionStorage.getItem(OWN) ?? "").split(",");
export const isOwn = (serverFilename) => own().includes(serverFilename);

const template = () => document.getElementById("upload");
const tray = () => document.getElementById("uploads");

export const addFiles = (files) => {
  const { chunkSize, unreadable } = template().dataset;
  for (const file of files) {
    const missing = unreadable.replace("{name}", () => file.name);
    if (!file.size) {
      showToast(missing); // An empty file, or a folder.
      continue;
    }
    let upload = unfinishedUploads().filter(isSameFile(file)).find(({ fileId }) => !rows.get(fileId)?.cancelling);
    if (upload && rows.get(upload.fileId)?.transfer) continue; // Already uploading.
    upload ??= { fileId: newId(file.name), name: file.name, size: file.size, modified: file.lastModified };
    saveUpload(upload);
    const row = rows.get(upload.fileId) ?? addRow(upload);
    row.transfer = new Transfer(file, upload.fileId, { address, chunkSize: Number(chunkSize), missing });
    row.transfer.addEventListener("change", () => transferChanged(row));
    transferChanged(row);
  }
  startWaiting();
};

// Start waiting uploads up to the limit.
const startWaiting = () => {
  const transfers = [...rows.values()].flatMap(({ transfer }) => transfer ?? []);
  const active = transfers.filter(({ state }) => state === "sending" || state === "retrying").length;
  const next = transfers.filter(({ state }) => state === "waiting").slice(0, Math.max(0, MAX_PARALLEL - active));
  for (const transfer of next) transfer.start();
};

const transferChanged = (row) => {
  renderRow(row);
  const { state, fileId, file } = row.transfer;
  if (state === row.state) return;
  row.state = state;
  if (state === "cancelled") removeUpload(fileId); // The same file gets a new X-File-ID next time.
  if (state === "complete") {
    removeUpload(fileId);
    sessionStorage.setItem(OWN, [row.transfer.serverFilename, ...own()].slice(0, MAX_OWN).join());
    placeRows();
    document.dispatchEvent(new CustomEvent("uploaded", { detail: row.transfer.serverFilename }));
  }
  if (state !== "sending" && state !== "retrying") queueMicrotask(startWaiting);
};

const versionAddress = (serverFilename, name) =>
  `${home}/publish/${serverFilename}?${new URLSearchParams({ name, ...pickedPackage() })}`;

const versionFormOf = ({ upload, transfer }) =>
  transfer ? versionAddress(transfer.serverFilename, upload.name) : versionAddress(upload.serverFilename, upload.name);

const pickedPackage = () => {
  const { pickedPackage: id } = document.querySelector("[data-transfers]")?.dataset ?? {};
  return id ? { package: id } : {};
};

export const addRow = (upload) => {
  const element = template().content.firstElementChild.cloneNode(true);
  const row = { upload, element, transfer: null, state: "" };
  element.dataset.fileId = upload.fileId;
  rows.set(upload.fileId, row);
  renderRow(row);
  placeRows();
  return row;
};

const remove = (row) => {
  rows.delete(row.upload.fileId);
  removeUpload(row.upload.fileId);
  row.element.remove();
  placeRows();
};

// Rows are in the list of the page, else in the tray, which stays on every page. The page has forms for some uploads.
export const placeRows = () => {
  const list = document.querySelector("[data-transfers]") ?? tray();
  const shown = new Set(Array.from(document.querySelectorAll("main [data-upload]"), ({ dataset }) => dataset.upload));
  for (const { element, transfer, upload } of rows.values()) {
    if (element.parentElement !== list) list.append(element);
    element.hidden = shown.has((transfer ?? upload).serverFilename);
  }
  tray().hidden = !tray().querySelector(":scope > :not([hidden])");
};

const BUTTONS = {
  waiting: ["cancel"],
  sending: ["pause", "cancel"],
  retrying: ["pause", "resume", "cancel"],
  paused: ["resume", "cancel"],
  "signed-out": ["sign-in", "resume", "cancel"],
  failed: ["resume", "cancel"],
  complete: ["version", "dismiss"],
  cancelled: ["dismiss"],
  arrived: ["version", "dismiss"],
  incomplete: ["cancel"],
  cancelling: [],
};

const renderRow = ({ upload, transfer, element, cancelling }) => {
  const part = (name) => element.querySelector(`[data-part="${name}"]`);
  const state = cancelling ? "cancelling" : (transfer?.state ?? (upload.serverFilename ? "arrived" : "incomplete"));
  element.dataset.state = state;
  part("name").textContent = upload.name;
  const sent = transfer?.sent ?? 0;
  const progress = part("progress");
  progress.value = sent / upload.size;
  progress.hidden = !transfer || state === "complete" || state === "cancelled";
  progress.setAttribute("aria-label", upload.name);
  part("sizes").textContent = transfer && state !== "complete" ? `${size(sent)} / ${size(upload.size)}` : size(upload.size);
  const speed = state === "sending" ? transfer.speed : 0;
  const values = {
    speed: size(speed),
    left: speed ? duration((upload.size - sent) / speed) : "",
    seconds: state === "retrying" ? Math.max(0, Math.round((transfer.retryAt - Date.now()) / 1000)) : "",
  };
  const text = speed ? element.dataset.sendingFast : element.dataset[camel(state)];
  part("state").textContent = text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const problem = state === "failed" || state === "retrying" ? transfer.problem : "";
  if (part("problem").textContent !== problem) part("problem").textContent = problem;
  for (const button of element.querySelectorAll("[data-do]")) button.hidden = !BUTTONS[state].includes(button.dataset.do);
  if (BUTTONS[state].includes("version")) element.querySelector('[data-do="version"]').href = versionFormOf({ upload, transfer });
};

const camel = (state) => state.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());

const ACTIONS = {
  pause: ({ transfer }) => transfer.stop(),
  resume: (row) => {
    const { transfer } = row;
    if (transfer.code !== "transfer_damaged") {
      transfer.stop("waiting");
      return startWaiting();
    }
    cancelTransfer(address, row.upload.fileId).catch(() => {}); // Else the repository deletes it after a day.
    remove(row); // The stored part is damaged: start again with a new id.
    addFiles([transfer.file]);
  },
  cancel: async (row) => {
    row.cancelling = true;
    if (row.transfer) row.transfer.stop();
    else renderRow(row);
    try {
      await cancelTransfer(address, row.upload.fileId);
      remove(row);
    } catch (problem) {
      row.cancelling = false;
      if (row.transfer) row.transfer.stop(problem.status === 401 ? "signed-out" : "paused");
      else renderRow(row);
      showToast(problem.message);
    }
  },
  dismiss: remove,
  version: (row) => navigate(versionFormOf(row)),
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-file-id] [data-do]");
  const act = ACTIONS[button?.dataset.do];
  if (!act || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  act(rows.get(button.closest("[data-file-id]").dataset.fileId));
});

// A published file needs no row.
document.addEventListener("published", ({ detail }) => {
  for (const row of [...rows.values()]) if ([row.transfer?.serverFilename, row.upload.serverFilename].includes(detail)) remove(row);
});

// Resume after a new sign-in in another window.
document.addEventListener("session", () => {
  for (const { transfer } of rows.values()) if (transfer?.state === "signed-out") transfer.stop("waiting");
  startWaiting();
});

addEventListener("beforeunload", (event) => {
  const isActive = [...rows.values()].some(({ transfer }) => transfer && ["waiting", "sending", "retrying"].includes(transfer.state));
  if (isActive) event.preventDefault();
});

setInterval(() => [...rows.values()].forEach((row) => row.state === "retrying" && renderRow(row)), 1000);

// The publish page shows unfinished uploads of earlier pages, because the user can select their files there.
const restoreRows = () => {
  if (document.querySelector("[data-transfers]")) {
    for (const row of [...rows.values()]) if (row.upload.serverFilename) remove(row); // The page lists them.
    for (const upload of unfinishedUploads()) rows.get(upload.fileId) ?? addRow(upload);
  } else {
    for (const row of [...rows.values()]) if (!row.transfer && !row.upload.serverFilename) rows.delete(row.upload.fileId);
  }
  placeRows();
};

document.addEventListener("htmx:load", restoreRows);
