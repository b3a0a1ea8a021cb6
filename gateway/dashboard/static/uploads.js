// The files that this window sends, on whatever page it is: shown on the page to publish where that is open, else in the
// tray. Which files are on their way is kept in the browser: the same file, chosen again after a reload, goes on.

import { go, say } from "./dashboard.js";
import { duration, size } from "./figures.js";
import { forget, isSame, keep, kept } from "./kept.js";
import { giveUp, Transfer } from "./transfer.js";

const AT_ONCE = 2; // files; further ones wait for their turn
const home = document.body.dataset.home;
const address = `${home}/operations/upload_package_version`;
// By X-File-ID: { upload, transfer, element, state }. Without a transfer it is one of an earlier page, which has no file
// any more, or has arrived from elsewhere and has a `serverFilename`. `cancelling` while the repository is told.
export const rows = new Map();

// The X-File-ID of a file: its name, for those who see it before it is a version, and what makes it the only one. Without
// `crypto.randomUUID`, which browsers have over TLS alone.
const newId = (name) => {
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, ""); // letters without what stands above them
  const called = plain.slice(-80).replace(/[^A-Za-z0-9._+=@-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  const mark = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return called ? `${called}~${mark}` : mark;
};
// The same as the filter `file_name` of the templates.
export const fileName = (fileId) => fileId.replace(/~[0-9a-f]{32}$/, "");

const template = () => document.getElementById("upload");
const tray = () => document.getElementById("uploads");

export const add = (files) => {
  const { chunkSize, unreadable } = template().dataset;
  for (const file of files) {
    const missing = unreadable.replace("{name}", () => file.name);
    if (!file.size) {
      say(missing); // An empty file, or a folder.
      continue;
    }
    let upload = kept().filter(isSame(file)).find(({ fileId }) => !rows.get(fileId)?.cancelling);
    if (upload && rows.get(upload.fileId)?.transfer) continue; // It is on its way.
    upload ??= { fileId: newId(file.name), name: file.name, size: file.size, modified: file.lastModified };
    keep(upload);
    const row = rows.get(upload.fileId) ?? show(upload);
    row.transfer = new Transfer(file, upload.fileId, { address, chunkSize: Number(chunkSize), missing });
    row.transfer.addEventListener("change", () => changed(row));
    changed(row);
  }
  begin();
};

// Let as many go as may.
const begin = () => {
  const transfers = [...rows.values()].flatMap(({ transfer }) => transfer ?? []);
  const going = transfers.filter(({ state }) => state === "sending" || state === "away").length;
  const next = transfers.filter(({ state }) => state === "waiting").slice(0, Math.max(0, AT_ONCE - going));
  for (const transfer of next) transfer.start();
};

const changed = (row) => {
  draw(row);
  const { state, fileId, file } = row.transfer;
  if (state === row.state) return;
  row.state = state;
  if (state === "cancelled") forget(fileId); // The same file, chosen again, gets a new X-File-ID.
  if (state === "complete") {
    forget(fileId);
    place();
    if (row.element.closest("[data-transfers]") && rows.size === 1) go(addressOf(row));
  }
  if (state !== "sending" && state !== "away") queueMicrotask(begin);
};

const versionAddress = (serverFilename, name) =>
  `${home}/publish/${serverFilename}?${new URLSearchParams({ name, ...pickedPackage() })}`;

const addressOf = ({ upload, transfer }) =>
  transfer ? versionAddress(transfer.serverFilename, upload.name) : versionAddress(upload.serverFilename, upload.name);

const pickedPackage = () => {
  const { pickedPackage: id } = document.querySelector("[data-transfers]")?.dataset ?? {};
  return id ? { package: id } : {};
};

export const show = (upload) => {
  const element = template().content.firstElementChild.cloneNode(true);
  const row = { upload, element, transfer: null, state: "" };
  element.dataset.fileId = upload.fileId;
  rows.set(upload.fileId, row);
  draw(row);
  place();
  return row;
};

const remove = (row) => {
  rows.delete(row.upload.fileId);
  forget(row.upload.fileId);
  row.element.remove();
  place();
};

// Rows stand where the page has room for them, else in the tray, which survives from page to page.
const place = () => {
  const list = document.querySelector("[data-transfers]") ?? tray();
  const inForm = document.getElementById("version")?.dataset.serverFilename;
  for (const { element, transfer, upload } of rows.values()) {
    if (element.parentElement !== list) list.append(element);
    element.hidden = Boolean(inForm) && inForm === (transfer ?? upload).serverFilename;
  }
  // What this window has sent is shown once, under its own name.
  const sent = new Set([...rows.values()].map(({ transfer }) => transfer?.serverFilename));
  for (const listed of document.querySelectorAll("[data-upload]")) listed.hidden = sent.has(listed.dataset.upload);
  tray().hidden = !tray().querySelector(":scope > :not([hidden])");
};

const BUTTONS = {
  waiting: ["cancel"],
  sending: ["pause", "cancel"],
  away: ["pause", "resume", "cancel"],
  paused: ["resume", "cancel"],
  "signed-out": ["sign-in", "resume", "cancel"],
  failed: ["resume", "cancel"],
  complete: ["version", "dismiss"],
  cancelled: ["dismiss"],
  arrived: ["version", "dismiss"],
  left: ["cancel"],
  cancelling: [],
};

const draw = ({ upload, transfer, element, cancelling }) => {
  const part = (name) => element.querySelector(`[data-part="${name}"]`);
  const state = cancelling ? "cancelling" : (transfer?.state ?? (upload.serverFilename ? "arrived" : "left"));
  element.dataset.state = state;
  part("name").textContent = upload.name;
  const sent = transfer?.sent ?? 0;
  const progress = part("progress");
  progress.value = sent / upload.size;
  progress.hidden = !transfer || state === "complete" || state === "cancelled";
  progress.setAttribute("aria-label", upload.name);
  part("sizes").textContent = transfer && state !== "complete" ? `${size(sent)} / ${size(upload.size)}` : size(upload.size);
  const speed = state === "sending" ? transfer.speed : 0;
  const told = {
    speed: size(speed),
    left: speed ? duration((upload.size - sent) / speed) : "",
    seconds: state === "away" ? Math.max(0, Math.round((transfer.retryAt - Date.now()) / 1000)) : "",
  };
  const text = speed ? element.dataset.sendingFast : element.dataset[camel(state)];
  part("state").textContent = text.replace(/\{(\w+)\}/g, (_, name) => told[name]);
  const problem = state === "failed" || state === "away" ? transfer.problem : "";
  if (part("problem").textContent !== problem) part("problem").textContent = problem;
  for (const button of element.querySelectorAll("[data-do]")) button.hidden = !BUTTONS[state].includes(button.dataset.do);
  if (BUTTONS[state].includes("version")) element.querySelector('[data-do="version"]').href = addressOf({ upload, transfer });
};

const camel = (state) => state.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());

const ACTIONS = {
  pause: ({ transfer }) => transfer.stop(),
  resume: (row) => {
    const { transfer } = row;
    if (transfer.code !== "transfer_damaged") {
      transfer.stop("waiting");
      return begin();
    }
    giveUp(address, row.upload.fileId).catch(() => {}); // Else the repository drops it by itself, after a day.
    remove(row); // What is stored of it is of no use: begin again, under another id.
    add([transfer.file]);
  },
  cancel: async (row) => {
    row.cancelling = true;
    if (row.transfer) row.transfer.stop();
    else draw(row);
    try {
      await giveUp(address, row.upload.fileId);
      remove(row);
    } catch (problem) {
      row.cancelling = false;
      if (row.transfer) row.transfer.stop(problem.status === 401 ? "signed-out" : "paused");
      else draw(row);
      say(problem.message);
    }
  },
  dismiss: remove,
  version: (row) => go(addressOf(row)),
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-file-id] [data-do]");
  const act = ACTIONS[button?.dataset.do];
  if (!act || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  act(rows.get(button.closest("[data-file-id]").dataset.fileId));
});

// A version was made of a file: that is all there was to do with it.
document.addEventListener("published", ({ detail }) => {
  for (const row of [...rows.values()]) if ([row.transfer?.serverFilename, row.upload.serverFilename].includes(detail)) remove(row);
});

// Whoever signs in again in another window goes on here.
document.addEventListener("session", () => {
  for (const { transfer } of rows.values()) if (transfer?.state === "signed-out") transfer.stop("waiting");
  begin();
});

addEventListener("beforeunload", (event) => {
  const going = [...rows.values()].some(({ transfer }) => transfer && ["waiting", "sending", "away"].includes(transfer.state));
  if (going) event.preventDefault();
});

setInterval(() => [...rows.values()].forEach((row) => row.state === "away" && draw(row)), 1000);

// What an earlier page began, and another window may be sending, is shown where the file can be chosen again.
const dress = () => {
  if (document.querySelector("[data-transfers]")) {
    for (const row of [...rows.values()]) if (row.upload.serverFilename) remove(row); // The page lists them.
    for (const upload of kept()) rows.get(upload.fileId) ?? show(upload);
  } else {
    for (const row of [...rows.values()]) if (!row.transfer && !row.upload.serverFilename) rows.delete(row.upload.fileId);
  }
  place();
};

document.addEventListener("htmx:load", dress);
